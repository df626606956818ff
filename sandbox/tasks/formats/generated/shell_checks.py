"""Hidden tests as plain POSIX shell with a few builtins each, because they run thousands of times.

A check is a shell expression that succeeds if the final state is right. :func:`check_script` turns named checks into a
test script that prints a summary like pytest's. Only ``stat`` and ``readlink`` ever start a process.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

SUMMARY_HEADER = "=== short test summary info ==="

_LIBRARY = """\
# Reads a regular file of at most 200 lines into $text, each line ended by a newline and begun by $1.
slurp() {
    text= ; left=200
    [ -f "$2" ] && [ ! -L "$2" ] || return 1
    while IFS= read -r line || [ -n "$line" ]; do
        [ "$left" -gt 0 ] || return 1
        left=$((left - 1)) ; text="$text$1${line#./}
"
    done < "$2"
}
# The file holds exactly the given text.
holds() { slurp "" "$1" && [ "$text" = "$2" ]; }
# The file holds exactly the given lines, in any order.
lists() {
    slurp "|" "$1" || return 1
    shift
    [ "$left" -eq $((200 - $#)) ] || return 1
    for wanted; do
        case "$text" in *"|$wanted
"*) ;; *) return 1 ;; esac
    done
}
# The folder holds exactly the given visible names, sorted.
only() { (cd "$1" && shift && wanted="$*" && set -- * && [ "$*" = "$wanted" ]); }
report() { if "$1"; then echo "PASSED $1"; else echo "FAILED $1"; fi; }
"""


@dataclass(frozen=True, slots=True)
class ShellCheck:
    name: str
    expression: str
    """A shell command list; its exit status is the verdict."""


def as_text_file(lines: Sequence[str]) -> str:
    """Return the content of a text file with these lines."""
    return "".join(f"{line}\n" for line in lines)


def file_holds(path: str, lines: Sequence[str]) -> str:
    """Return the check that ``path`` is a regular file with exactly these lines; the last newline may be missing."""
    return shlex.join(["holds", path, as_text_file(lines)])


def file_lists(path: str, lines: Sequence[str]) -> str:
    """Return the check that ``path`` has exactly these lines in any order; a leading ``./`` does not matter."""
    return shlex.join(["lists", path, *lines])


def folder_holds_only(folder: str, names: Sequence[str]) -> str:
    """Return the check that ``folder`` has exactly these visible entries."""
    return shlex.join(["only", folder, *sorted(names)])


def check_script(checks: Sequence[ShellCheck], workdir: str) -> str:
    """Return the test script: one line per check, after a line that announces them."""
    functions = "".join(f"{check.name}() {{ {check.expression}; }}\n" for check in checks)
    reports = "".join(f"report {check.name}\n" for check in checks)
    start = f"LC_ALL=C\nunset IFS\ncd {shlex.quote(workdir)} || exit 1\n"
    return f"#!/bin/sh\n{_LIBRARY}{functions}{start}echo '{SUMMARY_HEADER}'\n{reports}"
