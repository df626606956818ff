"""Everything that longshore's commands share: options, the ``--json`` object, the final line and the exit code."""
