"""A parsed shell script, as plain values.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from itertools import dropwhile
from typing import NamedTuple

COMMAND_STARTERS = frozenset(("exec", "command", "time", "timeout"))
"""Commands that start the command in their arguments."""
ALL_ARGUMENTS = frozenset(("$1", "$@"))
"""Words that stand for a function's or script's own arguments, run as a command."""
SHELLS = frozenset(("sh", "ash", "bash"))
DECLARING_BUILTINS = frozenset(("declare", "export", "local", "readonly", "typeset"))
"""Builtins that set the variables that their arguments name."""
ASSIGNMENT = re.compile(r"\w+\+?=")
MOST_CHARACTERS = 64 << 10
"""Maximum length of scripts that are read: the parser takes some ten seconds for 1 MiB."""
_SHELL_OPTION = re.compile(r"-[eux]+")


class UnreadableScriptError(Exception):
    """The text is not a shell script, or one that only a shell could read."""


class ExecutionCertainty(Enum):
    """Certainty that a script that ends has run a command in its own shell and waited for it."""

    ALWAYS = auto()
    IF_PREVIOUS_SUCCEEDED = auto()
    """If the previous command succeeded."""
    MAYBE = auto()


class ShellCommand(NamedTuple):
    """A simple command."""

    words: tuple[str, ...]
    """The words with their quotes, without redirections."""
    reads_pipe: bool
    """True if it reads the previous command's output."""
    function: str
    """Name of the function whose body it is in; empty for none."""
    when: ExecutionCertainty
    offset: int
    """Offset of its first byte in the script."""
    runs_alone: bool
    """True if, within its function, no pipe joins it to another command and nothing runs at the same time."""
    has_input: bool
    """True if its own redirections set its standard input."""
    input: str
    """A word with the text of its standard input, such as ``$(< list)``, which its own redirection or pipe gives, or
    that of a statement around it; empty for none. Of a long text it has the start."""
    inherited_outputs: frozenset[str]
    """Its descriptors 1 and 2 that, within its function, lead to the script's own."""
    is_in_branch: bool
    """True if its function runs it in some cases only: in a branch or a loop, or where another command failed."""


class ShellScript(NamedTuple):
    """The parts of a script that tell what it starts. Nothing is expanded."""

    commands: tuple[ShellCommand, ...]
    """All simple commands; those in substitutions come before the command that they are part of."""
    functions: Mapping[str, int]
    """Offsets of the functions that the script certainly defines, by name."""
    arithmetic: tuple[str, ...]
    """Texts that bash evaluates as arithmetic, where a variable's value is an expression again, commands included."""
    unquoted_tests: tuple[str, ...]
    """Unquoted expansions in ``[ … ]`` or ``test``, whose value may be an operator, and those that ``[[ … ]]`` and
    ``case`` use as a pattern."""
    loops: tuple[tuple[str, tuple[str, ...]], ...]
    """Variable and values of each loop; a loop without values is over the arguments."""
    written_files: tuple[str, ...]
    """Targets of redirections that write."""
    opened_descriptors: tuple[str, ...]
    """Redirections of other descriptors than 0, 1 and 2, or that read by 1 or 2."""
    background: tuple[str, ...]
    """Texts of commands that run in the background."""


def unquote(word: str) -> str:
    """Return the word without its quotes."""
    return word.replace('"', "").strip("'")


def shell_script_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the script that a shell is called with (empty for none) and the script's arguments."""
    return list(dropwhile(_SHELL_OPTION.fullmatch, arguments)) or [""]
