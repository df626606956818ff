"""Checks how tests run the agent's program as nobody, and what it could learn from them. Pure.

Such a program can read what it inherits (descriptors, exported variables) and the arguments of all concurrent processes
(``/proc/PID/cmdline``): none of them may contain the expected results. The agent may define the user *nobody* in
``/etc/passwd``; 65534 always means the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile, takewhile
from typing import NamedTuple

from sandbox.grading.shell_scripts.script import (
    ALL_ARGUMENTS,
    ASSIGNMENT,
    COMMAND_STARTERS,
    DECLARING_BUILTINS,
    SHELLS,
    ShellCommand,
    ShellScript,
    shell_script_arguments,
    unquote,
)

START_STOP_DAEMON = "start-stop-daemon"
_STARTERS = rf"\b(?:su|runuser|sudo|setpriv|{START_STOP_DAEMON})\b"
_BY_NAME = re.compile(
    r"\b(?=\w*(?:user|group|nobody))\w++[\"']?\s*+[=:]\s*+[\"'](?:nobody|nogroup)\b|"
    r"\bget(?:pw|gr)nam\(\s*[\"'](?:nobody|nogroup)\b|"
    rf"{_STARTERS}(?:(?!{_STARTERS}).)*\bnobody\b",
    re.IGNORECASE,
)
_WHO = "the agent may define that user in /etc/passwd: name 65534"
_IN_ITS_ENVIRONMENT = "a program would have it in its environment: do not export it"
_NOT_ROOT = re.compile(r"[1-9]\d{0,8}:[1-9]\d{0,8}")
_ONE_WORD = re.compile(r"[\w./+:@%,=-]+|'[^']*'|\"(?:[^\"`\\$]|\$(?:[A-Za-z_]\w*+|\d|\{\w+\}))*\"")
"""Matches one word, whatever values its variables have."""
_FLAGS = frozenset(("-S", "-q", "--start", "--quiet"))
_VALUED = frozenset(("-x", "-a", "--exec", "--startas"))
_USER = frozenset(("-c", "--chuid"))
_HARMLESS = re.compile(r"(?:LC_\w+|LANG|LANGUAGE|TZ|TERM|TEST_DIR|DEBIAN_FRONTEND)(?:=.*)?", re.DOTALL)


class IsolationRisk(NamedTuple):
    """A part of the tests that is not certainly the toolchain's."""

    what: str
    """Text of the part, as the tests write it."""
    instead: str = ""
    """Possible exploit of an agent's program, and what to write; empty if the image's programs take part."""


def find_named_users(texts: Iterable[str]) -> Iterator[IsolationRisk]:
    """Yield each place where tests name the user nobody."""
    yield from (IsolationRisk(found[0], _WHO) for found in map(_BY_NAME.search, texts) if found)


def find_exposures(main: ShellScript, others: Mapping[str, ShellScript]) -> Iterator[IsolationRisk]:
    """Yield what a program that these scripts start could learn or do by accident. ``others``: scripts among the
    tests."""
    scripts = (main, *others.values())
    commands = [command for script in scripts for command in script.commands]
    if not any(map(starts_program, commands)):
        return
    reader = _Reader(commands)
    for script in scripts:
        yield from (
            IsolationRisk(each, "a program would have it too: open no descriptor") for each in script.opened_descriptors
        )
        yield from (
            IsolationRisk(each, "a program could read its arguments: let nothing run beside")
            for each in script.background
        )
        yield from (risk for command in script.commands for risk in reader.risks(command))


def starts_program(command: ShellCommand) -> bool:
    return START_STOP_DAEMON in map(unquote, command.words)


class _Reader:
    """Finds the commands that start a program of the agent."""

    def __init__(self, commands: Collection[ShellCommand]) -> None:
        self._functions = {each.function for each in commands}
        self._starting = self._and_callers(commands)
        self._loud = {
            of: self._and_callers([each for each in commands if of in each.inherited_outputs]) for of in ("1", "2")
        }
        """Commands and functions whose program may print to a descriptor, by descriptor, unless it is redirected."""

    def _and_callers(self, commands: Collection[ShellCommand]) -> set[str]:
        """Return what starts a program, including the functions that do so in one of these commands."""
        known, found = set[str](), {START_STOP_DAEMON}
        while found:
            known |= found
            found = {each.function for each in commands if self._starts(each, known)} - known - {""}
        return known

    def risks(self, command: ShellCommand) -> Iterator[IsolationRisk]:
        words = [unquote(word) for word in command.words]
        text = " ".join(command.words)
        script, *arguments = self._run(words)
        starts = bool(script) or words[0] in ALL_ARGUMENTS | {"source", "."} or self._starts(command, self._starting)
        if starts and not command.runs_alone:
            yield IsolationRisk(
                text, "a program could read what it is joined with: got=$(… < /dev/null 2> /dev/null), then look at it"
            )
        if arguments:
            yield IsolationRisk(text, "a program could read these arguments: set variables and source the script")
        if START_STOP_DAEMON in self._started(words):
            yield from _daemon_call_risks(command.words[words.index(START_STOP_DAEMON) + 1 :], text)
            if not command.has_input:
                yield IsolationRisk(text, "it could read the tests' own input: end it with < /dev/null")
        elif starts and not all(map(_HARMLESS.fullmatch, takewhile(ASSIGNMENT.match, words))):
            yield IsolationRisk(text, _IN_ITS_ENVIRONMENT)
        if any(_exports(words)):
            yield IsolationRisk(text, _IN_ITS_ENVIRONMENT)
        if not command.function and any(self._starts(command, self._loud[of]) for of in command.inherited_outputs):
            yield IsolationRisk(
                text, "a program could print a verdict: got=$(… < /dev/null 2> /dev/null), then look at it"
            )

    def _starts(self, command: ShellCommand, known: Collection[str]) -> bool:
        return any(each in known for each in self._started([unquote(word) for word in command.words]))

    def _run(self, words: Sequence[str]) -> list[str]:
        """Return the script that the command runs in a shell (empty for none) and the script's arguments."""
        if SHELLS.isdisjoint(self._started(words)):
            return [""]
        return shell_script_arguments(list(dropwhile(lambda word: word not in SHELLS, words))[1:])

    def _started(self, words: Sequence[str]) -> Sequence[str]:
        """Return the words that the command may start: the first, or all if the first one starts others."""
        left = list(dropwhile(ASSIGNMENT.match, words))
        if left[:1] == ["command"] and left[1:2] in (["-v"], ["-V"]):
            return ()
        several = left and (left[0] in COMMAND_STARTERS | ALL_ARGUMENTS or left[0] in self._functions)
        return left if several else left[:1]


def _daemon_call_risks(arguments: Sequence[str], text: str) -> Iterator[IsolationRisk]:
    """Yield a risk unless start-stop-daemon starts one program as nobody and does nothing else."""
    left = iter(arguments)
    user = ""
    for word in left:
        if word == "--":
            break
        if word in _FLAGS:
            continue
        value = next(left, "")
        if word in _USER:
            user = unquote(value)
            if not _NOT_ROOT.fullmatch(user):
                yield IsolationRisk(f"{word} {value}", "it may be root: write -c 65534:65534")
        elif word not in _VALUED or not _ONE_WORD.fullmatch(value):
            yield IsolationRisk(text)
    if not user:
        yield IsolationRisk(text, "it would run as root: write -c 65534:65534")


def _exports(words: Sequence[str]) -> Iterator[bool]:
    program, *arguments = words
    options = [each for each in arguments if each.startswith(("-", "+"))]
    if program == "set":
        yield "allexport" in arguments or any("a" in each for each in options if not each.startswith("--"))
    elif program == "export" or (program in DECLARING_BUILTINS and any("x" in each for each in options)):
        yield any(not _HARMLESS.fullmatch(each) for each in arguments if each not in options) or "-f" in options
