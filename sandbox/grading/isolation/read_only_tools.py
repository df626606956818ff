"""The kit's tools that only read and print (:mod:`sandbox.toolchain.gnu_tools`), whatever options they get but a few.  Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sandbox.grading.shell_scripts.script import unquote
from sandbox.toolchain.in_container.pins import TOOL_NAMES

_WHOLE = {*TOOL_NAMES, "which"} - {"find", "sort", "uniq"}
"""Of these no option, and no operand, writes or starts anything."""
_STARTS_OR_WRITES = {"-delete", "-exec", "-execdir", "-fls", "-fprint", "-fprint0", "-fprintf", "-ok", "-okdir"}
"""In an expression of find's."""
_SORTS_ELSEWHERE = re.compile(r"-[^-]*[oT].*|--(?:o|te|co).*")
"""Options of sort's that name a file, a folder or a program; long ones may be cut short."""
_KNOWN = re.compile(
    r"""(?:'[^']*'|"(?:[^"$`\\]|\\.|\$TEST_DIR\b|\$\{TEST_DIR\})*"|\$TEST_DIR\b|\$\{TEST_DIR\}|\\.|[^'"$`\\*?\[{~])*"""
)
"""A word that is what it says, as the script has it, wherever the tests' folder is."""


def is_read_only(tool: str, words: Sequence[str]) -> bool:
    """Whether it is one of them and does nothing else with these arguments, as the script has them.  Where an option or
    an operand would, none may come of what is not written out."""
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
