"""Tools of the toolchain that only read and print, with all but a few of their options. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sandbox.grading.shell_scripts.script import unquote
from sandbox.toolchain.in_container.pins import TOOL_NAMES

_WHOLE = {*TOOL_NAMES, "which"} - {"find", "sort", "uniq"}
"""Tools of which no option and no operand writes or starts anything."""
_STARTS_OR_WRITES = {"-delete", "-exec", "-execdir", "-fls", "-fprint", "-fprint0", "-fprintf", "-ok", "-okdir"}
"""Parts of an expression of ``find`` that write or start something."""
_SORTS_ELSEWHERE = re.compile(r"-[^-oT]*+[oT].*|--(?:o|te|co).*")
"""Options of ``sort`` that name a file, folder or program; long ones may be abbreviated."""
_KNOWN = re.compile(
    r"""(?:'[^']*'|"(?:[^"$`\\]|\\.|\$TEST_DIR\b|\$\{TEST_DIR\})*"|\$TEST_DIR\b|\$\{TEST_DIR\}|\\.|[^'"$`\\*?\[{~])*"""
)
"""Matches a word that no expansion changes, except the tests' folder."""


def is_read_only(tool: str, words: Sequence[str]) -> bool:
    """Return whether the tool only reads and prints with these arguments, as the script writes them.

    If an option or operand could do more, none may come from an expansion.
    """
    if tool in _WHOLE:
        return True
    if not all(map(_KNOWN.fullmatch, words)):
        return False
    arguments = list(map(unquote, words))
    match tool:
        case "find":
            return not _STARTS_OR_WRITES.intersection(arguments)
        case "sort":
            return not any(map(_SORTS_ELSEWHERE.fullmatch, arguments))
        case "uniq":
            return sum(not each.startswith("-") for each in arguments) < 2
        case _:
            return False
