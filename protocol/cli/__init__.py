"""What every command of ours has in common: its options, its ``--json`` object, its last line and its exit code."""
