"""How tests run the agent's program as nobody, and what it then learns of them.  Pure.

A program of nobody's reads what it inherits (descriptors, exported variables) and the arguments of all that runs beside
it (``/proc/PID/cmdline``): what the tests expect must be in none of them.  Who the user *nobody* is the agent may say,
in ``/etc/passwd``; 65534 is the same to everybody.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile, takewhile
from typing import NamedTuple

from sandbox.grading.script import (
    ASSIGNED,
    DECLARES,
    ITS_ARGUMENTS,
    SHELLS,
    STARTERS,
    Command,
    Script,
    bare,
    run_by_shell,
)

START = "start-stop-daemon"
_BY_NAME = re.compile(
    r"\b\w*(?:user|group|nobody)\w*[\"']?\s*[=:]\s*[\"'](?:nobody|nogroup)\b|"
    r"\bget(?:pw|gr)nam\(\s*[\"'](?:nobody|nogroup)\b|"
    r"\b(?:su|runuser|sudo|setpriv|start-stop-daemon)\b.*\bnobody\b",
    re.IGNORECASE,
)
_WHO = "who that is the agent may say in /etc/passwd: name 65534"
_IN_ITS_ENVIRONMENT = "a program would have it in its environment: do not export it"
_NOT_ROOT = re.compile(r"[1-9]\d{0,8}:[1-9]\d{0,8}")
_ONE_WORD = re.compile(r"[\w./+:@%,=-]+|'[^']*'|\"(?:[^\"`\\$]|\$(?:[A-Za-z_]\w*|\d|\{\w+\}))*\"")
"""Whatever it holds."""
_FLAGS = frozenset(("-S", "-q", "--start", "--quiet"))
_VALUED = frozenset(("-x", "-a", "--exec", "--startas"))
_USER = frozenset(("-c", "--chuid"))
_HARMLESS = re.compile(r"(?:LC_\w+|LANG|LANGUAGE|TZ|TERM|TEST_DIR|DEBIAN_FRONTEND)(?:=.*)?", re.DOTALL)


class Doubt(NamedTuple):
    """What of tests is not certainly the kit's."""

    what: str
    """As they have it."""
    instead: str = ""
    """Why an agent's program could make use of it, and what to write; empty where the image's programs take part."""


def named(texts: Iterable[str]) -> Iterator[Doubt]:
    """Where tests name nobody."""
    yield from (Doubt(found[0], _WHO) for found in map(_BY_NAME.search, texts) if found)


def told(main: Script, others: Mapping[str, Script]) -> Iterator[Doubt]:
    """What a program that these scripts start can learn, or do, by accident.  ``others``: those that come along."""
    scripts = (main, *others.values())
    commands = [command for script in scripts for command in script.commands]
    if not any(map(names_start, commands)):
        return
    reader = _Reader(commands)
    for script in scripts:
        yield from (Doubt(each, "a program would have it too: open no descriptor") for each in script.opened)
        yield from (Doubt(each, "a program could read its arguments: let nothing run beside") for each in script.beside)
        yield from (doubt for command in script.commands for doubt in reader.doubts(command))


def names_start(command: Command) -> bool:
    return START in map(bare, command.words)


class _Reader:
    """Knows which commands start a program."""

    def __init__(self, commands: Collection[Command]) -> None:
        self._functions = {each.within for each in commands}
        self._starting = self._and_callers(commands)
        self._loud = {of: self._and_callers([each for each in commands if of in each.heard]) for of in ("1", "2")}
        """By descriptor, where nothing says yet where it goes what a program prints there."""

    def _and_callers(self, commands: Collection[Command]) -> set[str]:
        """What starts a program, with the functions that do so in one of these commands."""
        known, found = set[str](), {START}
        while found:
            known |= found
            found = {each.within for each in commands if self._starts(each, known)} - known - {""}
        return known

    def doubts(self, command: Command) -> Iterator[Doubt]:
        words = [bare(word) for word in command.words]
        text = " ".join(command.words)
        script, *arguments = self._run(words)
        starts = bool(script) or words[0] in ITS_ARGUMENTS | {"source", "."} or self._starts(command, self._starting)
        if starts and not command.alone:
            yield Doubt(
                text, "a program could read what it is joined with: got=$(… < /dev/null 2> /dev/null), then look at it"
            )
        if arguments:
            yield Doubt(text, "a program could read these arguments: set variables and source the script")
        if START in self._started(words):
            yield from _as_told(command.words[words.index(START) + 1 :], text)
            if not command.fed:
                yield Doubt(text, "it could read the tests' own input: end it with < /dev/null")
        elif starts and not all(map(_HARMLESS.fullmatch, takewhile(ASSIGNED.match, words))):
            yield Doubt(text, _IN_ITS_ENVIRONMENT)
        if any(_exports(words)):
            yield Doubt(text, _IN_ITS_ENVIRONMENT)
        if not command.within and any(self._starts(command, self._loud[of]) for of in command.heard):
            yield Doubt(text, "a program could print a verdict: got=$(… < /dev/null 2> /dev/null), then look at it")

    def _starts(self, command: Command, known: Collection[str]) -> bool:
        return any(each in known for each in self._started([bare(word) for word in command.words]))

    def _run(self, words: Sequence[str]) -> list[str]:
        """The script that it has a shell run, empty for none, with its arguments."""
        if SHELLS.isdisjoint(self._started(words)):
            return [""]
        return run_by_shell(list(dropwhile(lambda word: word not in SHELLS, words))[1:])

    def _started(self, words: Sequence[str]) -> Sequence[str]:
        """What it may start: its first word, and all where that one starts others."""
        left = list(dropwhile(ASSIGNED.match, words))
        if left[:1] == ["command"] and left[1:2] in (["-v"], ["-V"]):
            return ()
        several = left and (left[0] in STARTERS | ITS_ARGUMENTS or left[0] in self._functions)
        return left if several else left[:1]


def _as_told(arguments: Sequence[str], text: str) -> Iterator[Doubt]:
    """Unless start-stop-daemon starts a program, as nobody, and does nothing else."""
    left = iter(arguments)
    user = ""
    for word in left:
        if word == "--":
            break
        if word in _FLAGS:
            continue
        value = next(left, "")
        if word in _USER:
            user = bare(value)
            if not _NOT_ROOT.fullmatch(user):
                yield Doubt(f"{word} {value}", "it may be root: say -c 65534:65534")
        elif word not in _VALUED or not _ONE_WORD.fullmatch(value):
            yield Doubt(text)
    if not user:
        yield Doubt(text, "it would be root's: say -c 65534:65534")


def _exports(words: Sequence[str]) -> Iterator[bool]:
    program, *arguments = words
    options = [each for each in arguments if each.startswith(("-", "+"))]
    if program == "set":
        yield "allexport" in arguments or any("a" in each for each in options if not each.startswith("--"))
    elif program == "export" or (program in DECLARES and any("x" in each for each in options)):
        yield any(not _HARMLESS.fullmatch(each) for each in arguments if each not in options) or "-f" in options
