"""Judges the builtins of a shell, and tools that write, by their arguments.  Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from getopt import GetoptError, getopt
from itertools import pairwise

from sandbox.grading.isolation.write_targets import is_safe_target
from sandbox.grading.shell_scripts.script import DECLARING_BUILTINS, unquote

BUILTINS = frozenset((
    ":", "[", "[[", "break", "cd", "continue", "echo", "exit", "false", "printf", "pwd", "read", "return", "set",
    "shift", "test", "true", "type", "ulimit", "umask", "unset", "wait",
))  # fmt: skip  # fmt: skip
SETTERS = DECLARING_BUILTINS | {"printf", "read", "unset"}
"""Builtins that set or unset the variables that their arguments name."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_DECLARED = re.compile(r"[-+](?!\w*[in])\w+|[A-Za-z_]\w*(?:\+?=.*)?", re.DOTALL)
_READ_OPTIONS = "ersa:d:i:n:N:p:t:u:"
_PLAIN = {"unset": re.compile(r"-v|[A-Za-z_]\w*"), "wait": re.compile(r"-[nf]|%?\d+|\$!")}
"""Arguments that they may have: a subscript would be evaluated."""


def has_no_side_effect(program: str, arguments: Sequence[str]) -> bool:
    """Return whether a builtin or a tool sets and creates nothing that data names, and writes only to safe targets."""
    match program:
        case "set":
            return not any(map(is_expanded, arguments[:1]))
        case "read":
            return not any(map(is_expanded, arguments)) and _names_plainly([*map(unquote, arguments)])
        case "unset" | "wait":
            return all(_PLAIN[program].fullmatch(unquote(each)) for each in arguments)
        case "printf":
            return _formats([*map(unquote, arguments)])
        case "test" | "[" | "[[":
            return not any(way == "-v" and not _NAME.fullmatch(name) for way, name in pairwise(arguments))
        case "mkdir":
            return not any(map(is_expanded, arguments))
        case "tee":
            return all(each == "-a" or is_safe_target(each) for each in arguments)
        case _:
            return True


def _names_plainly(arguments: list[str]) -> bool:
    """Return whether ``read`` sets variables without a subscript, which would be evaluated."""
    try:
        options, names = getopt(arguments, _READ_OPTIONS)
    except GetoptError:
        return False
    return all(map(_NAME.fullmatch, (*names, *(value for option, value in options if option == "-a"))))


def _formats(arguments: list[str]) -> bool:
    """Return whether ``printf`` prints or sets a variable, with no option that an expansion could hold."""
    if arguments[:1] == ["-v"]:
        return bool(_NAME.fullmatch("".join(arguments[1:2]))) and _formats(arguments[2:])
    return not arguments or arguments[0] == "--" or not arguments[0].startswith(("-", "$", "`"))


def is_expanded(word: str) -> bool:
    """Return whether the shell expands something in the word."""
    return "$" in word or "`" in word


def declares_plainly(arguments: Sequence[str]) -> bool:
    """Return whether a declaring builtin sets variables without attributes that would evaluate their values."""
    return all(map(_DECLARED.fullmatch, arguments))
