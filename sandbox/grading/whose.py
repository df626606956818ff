"""Whose programs run a task's tests: the kit's or the container's.  Pure.

Read from the script: it is the kit's where each command is the shell's own, a function of the script's, a tool of the
kit's that starts no other program, or one that the kit stands in for (:mod:`sandbox.kit.answers`), pytest is told
nothing but to run the tests (:mod:`sandbox.grading.pytest_call`), and nothing may be written among them
(:mod:`sandbox.grading.writes`).  In doubt it is the container's.  What the tests themselves start is their own affair:
``subprocess.run(["git", …])`` in a test asks the container's git.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from sandbox.grading.places import Places
from sandbox.grading.pytest_call import TESTS, runs_tests_alone
from sandbox.grading.script import Script, Unreadable, read_script
from sandbox.grading.writes import may_write_among_tests
from sandbox.kit.answers import PROGRAMS, Answer, Done, Installer, Other, Run, Venv, answer
from sandbox.kit.phase import BASH, BUSYBOX


class Isolation(StrEnum):
    """Whose shell, tools and Python run the tests.  Always: alone, hidden until now, own stream."""

    KIT = "kit"
    """Ours, static or closed, and read-only."""
    IMAGE = "image"
    """The container's own take part, which a root agent can have replaced unless the container is a clean one."""


class Shell(NamedTuple):
    """How a script is run."""

    argv: tuple[str, ...]
    """Before the script's path; empty for a script that names an interpreter of the container's."""
    ours: bool
    posix: bool
    """A ``#!/bin/sh`` script finds the kit's tools first, whatever else it starts."""


_MOST_CHARACTERS = 64 << 10
"""Of scripts that are read: more would hold up whoever waits."""
_INTERPRETER = re.compile(r"#!\s*(?:/usr)?(?:/local)?/bin/(?:env\s+(?:-S\s+)?)?(\w+)\s*(.*)")


def shell_of(script: str, *, verifier: bool) -> Shell:
    """``verifier``: whether this kit has its verifier half, and so a bash."""
    first = script.split("\n", 1)[0].strip()
    found = _INTERPRETER.fullmatch(first)
    name, options = (found[1], tuple(found[2].split())) if found else ("", ())
    if not first.startswith("#!") or name in ("sh", "dash", "ash"):
        return Shell((BUSYBOX, "sh", *options), ours=True, posix=True)
    if name == "bash":
        return Shell((BASH if verifier else "/bin/bash", "--noprofile", "--norc", *options), verifier, posix=False)
    return Shell((), ours=False, posix=False)


_BUILTINS = frozenset((
    ":", "[", "[[", "break", "case", "cd", "continue", "dirs", "echo", "exit", "false", "for", "getopts", "jobs",
    "kill", "mapfile", "popd", "printf", "pushd", "pwd", "read", "readarray", "return", "set", "shift", "shopt",
    "test", "times", "true", "type", "ulimit", "umask", "unset", "wait",
))  # fmt: skip
_TOOLS = frozenset((
    "awk", "base64", "basename", "bc", "bunzip2", "bzcat", "bzip2", "cat", "chgrp", "chmod", "chown", "clear", "cmp",
    "cp", "cut", "date", "dd", "df", "diff", "dirname", "dos2unix", "du", "egrep", "expand", "expr",
    "factor", "fgrep", "find", "fold",
    "getopt", "grep", "groups", "gunzip", "gzip", "head", "hexdump", "hostname", "id", "killall", "ln", "ls",
    "lzcat", "lzma", "md5sum", "mkdir", "mkfifo", "mktemp", "mv", "netstat", "nl", "nproc", "nslookup", "od",
    "paste", "pidof", "ping", "ps", "readlink", "realpath", "rev", "rm", "rmdir", "sed", "seq", "sha1sum",
    "sha256sum", "sha3sum", "sha512sum", "shred", "shuf", "sleep", "sort", "stat", "start-stop-daemon", "strings",
    "sync", "tac", "tail", "tar", "tee", "touch", "tr", "truncate", "tty", "uname", "unexpand", "uniq", "unix2dos",
    "unlink", "unlzma", "unxz", "unzip", "uptime", "usleep", "uudecode", "uuencode", "wc", "which", "who", "whoami",
    "xxd", "xz", "xzcat", "yes", "zcat",
))  # fmt: skip
"""Of busybox.  What start-stop-daemon starts is the agent's, by its author's will."""
_DECLARES = frozenset(("declare", "export", "local", "readonly", "typeset"))
"""Builtins that set what their arguments name: PATH too, where these are not written out."""
_SETTERS = _DECLARES | {"getopts", "mapfile", "printf", "read", "readarray", "unset"}
"""Builtins that set or forget what their arguments name."""
_SHELLS = frozenset(("sh", "ash", "bash"))
_STARTS = re.compile(r"^[\"']?-(?:exec|ok)|--to-command|--use-compress|system\s*\(|getline|\|\s*[\"'&]")
"""How a tool is told to start another program; awk also in a file of its own."""
_ASSIGNED = re.compile(r"\w+\+?=")
_SETTING = (
    r"[\"']?(?:PATH|HOME|ENV|BASH_ENV|PS4|(?:PYTHON|PYTEST_|UV_|LD_)\w*|"
    r"TEST_DIR(?!=[\"']?(?:/tests|\$\{TEST_DIR:-/tests\})/?[\"']?$))"
)
_SETTINGS, _NAMED_SETTING = re.compile(rf"{_SETTING}\+?="), re.compile(rf"{_SETTING}[\"']?$")
_INSTALLED = re.compile(r"(?:\$HOME|\$\{HOME\}|~|/root)/\.local/bin/env")
_LIMIT = re.compile(r"-\w+|[\d.]+[smhd]?")
_STARTERS = frozenset(("exec", "command", "time", "timeout"))
_ITS_ARGUMENTS = frozenset(("$1", "$@"))
_LENGTH = re.compile(r"\$\{#[^}]*\}|\$[?#$!]")
_NAME = re.compile(r"(?<!\w)[A-Za-z_]\w*")
_ANYTHING = re.compile(r"\$\((?!\()|`|\$\{?[\d@*]")
"""A command's output, or an argument."""
_NUMBER = re.compile(r"[\"']?(?:\d+|\$[?#]|\$\(\(.*\)\))[\"']?", re.DOTALL)
_COUNTS = re.compile(r"(?<!\w)([A-Za-z_]\w*)\s*(?:[-+*/%]?=(?!=)|\+\+|--)")
_ASSIGNS = re.compile(r"(\w+)\+?=(.*)", re.DOTALL)
_TAKES_DATA = frozenset(("awk", "find", "tar"))
"""Tools that start other programs where an argument says so."""
_INDEXED = re.compile(r"[^=]*\[[^=]*[$`]")


def isolation_of(script: str, tests: Mapping[str, bytes], *, verifier: bool = True) -> Isolation:
    """Of a test script, with the shell scripts that it brings along."""
    beside = [data.decode(errors="replace") for path, data in tests.items() if path.endswith(".sh")]
    if not shell_of(script, verifier=verifier).ours or sum(map(len, (script, *beside))) > _MOST_CHARACTERS:
        return Isolation.IMAGE
    try:
        scripts = [read_script(each) for each in (script, *beside)]
    except (Unreadable, RecursionError):
        return Isolation.IMAGE
    reader = _Reader(scripts, tests, verifier=verifier)
    ours = _evaluates_numbers(scripts) and not _counts_settings(scripts) and all(map(reader.ours, scripts))
    return Isolation.KIT if ours else Isolation.IMAGE


def _evaluates_numbers(scripts: Sequence[Script]) -> bool:
    """Whether arithmetic has only variables to which nothing but numbers is assigned."""
    numbers: dict[str, bool] = {}
    for command in (command for script in scripts for command in script.commands):
        setter = _bare(command.words[0]) in _SETTERS
        for word in command.words:
            if found := _ASSIGNS.fullmatch(word):
                numbers[found[1]] = numbers.get(found[1], True) and bool(_NUMBER.fullmatch(found[2]))
            elif setter:
                numbers[_bare(word)] = False
    for name, over in (loop for script in scripts for loop in script.loops):
        numbers[name] = numbers.get(name, True) and all(map(_NUMBER.fullmatch, over))
    texts = [_LENGTH.sub("", text) for script in scripts for text in script.evaluated]
    for text in texts:
        for name in _COUNTS.findall(text):
            numbers.setdefault(name, True)
    return not any(map(_ANYTHING.search, texts)) and all(
        numbers.get(name, False) for text in texts for name in _NAME.findall(text)
    )


def _counts_settings(scripts: Sequence[Script]) -> bool:
    """Whether a loop or arithmetic sets a variable that says what runs."""
    names = [name for script in scripts for name, _ in script.loops]
    names += [name for script in scripts for text in script.evaluated for name in _NAME.findall(text)]
    return any(map(_NAMED_SETTING.match, names))


class _Reader:
    """Reads scripts from top to bottom."""

    def __init__(self, scripts: Sequence[Script], tests: Collection[str], *, verifier: bool) -> None:
        self._tests = tests
        self._verifier = verifier
        self._places = Places(scripts, _SETTERS - _DECLARES)
        self._functions = {name for script in scripts for name in script.functions}
        commands = [command for script in scripts for command in script.commands]
        self._callers = {each.within for each in commands if each.within and _bare(each.words[0]) in _ITS_ARGUMENTS}
        """Functions that take their arguments for a command."""
        self._installed = False
        self._installers: set[str] = set()
        self._made: set[str] = set()
        self._active = False

    def ours(self, script: Script) -> bool:
        if any(map(self._places.may_be_tests, script.into)) or any(map(self._places.is_data, script.tested)):
            return False
        installer = False  # whether the command before has printed uv's
        for command in script.commands:
            if command.words in (("sh",), ("bash",)) and command.piped and installer:
                continue
            if not self._command(command.words, command.within):
                return False
            installer = isinstance(self._answer(command.words), Installer)
        return True

    def _command(self, words: Sequence[str], within: str) -> bool:
        if any(map(_SETTINGS.match, words)):
            return False
        while words and _ASSIGNED.match(words[0]):
            words = words[1:]
        if not words:
            return True
        first = _bare(words[0])
        if first in self._functions:
            return first not in self._callers or self._command(words[1:], "")
        if first in _ITS_ARGUMENTS:
            return within in self._callers
        if first in _SETTERS and any(map(_NAMED_SETTING.match, words[1:])):
            return False
        if first in _STARTERS:
            return self._command(_started(words), within)
        return self._program(first, words)

    def _program(self, first: str, words: Sequence[str]) -> bool:
        arguments = [_bare(word) for word in words[1:]]
        if first in PROGRAMS:
            return self._verifier and self._stands_in(words)
        if first in ("source", "."):
            return bool(arguments) and self._may_source(arguments[0])
        if first in _SHELLS:
            return (first != "bash" or self._verifier) and self._may_run(arguments)
        if self._active and first in ("pytest", "py.test"):
            return runs_tests_alone(words[1:], self._tests)
        if first in _DECLARES:
            return not any(
                each.startswith(("$", "`")) or _INDEXED.match(each) or re.match(r"[-+]\w*[in]", each)
                for each in arguments
            )
        if self._is_led_by_data(first, words) or may_write_among_tests(first, words[1:], self._places):
            return False
        starts = any(map(_STARTS.search, words)) or (first == "awk" and "-f" in arguments)
        starts = starts or (first in _TAKES_DATA and _is_told_by_data(first, words[1:]))
        return first in _BUILTINS or (first in _TOOLS and not starts)

    def _is_led_by_data(self, first: str, words: Sequence[str]) -> bool:
        if first == "test":
            return any(way == "-v" and not _NAME.fullmatch(name) for way, name in pairwise(words))
        return first in _SETTERS and ("-C" in words or _names_by_data(first, words))

    def _answer(self, words: Sequence[str]) -> Answer:
        program, *arguments = (_bare(word) for word in words)
        return answer(program, arguments) if program in PROGRAMS else Other()

    def _stands_in(self, words: Sequence[str]) -> bool:
        match self._answer(words):
            case Done():
                return True
            case Installer(into):
                self._installed = True
                self._installers.add(into)
                return True
            case Venv(path):
                self._made.add(path)
                return True
            case Run(["pytest", *rest]):
                return bool(rest) and runs_tests_alone(words[-len(rest) :], self._tests)
            case Other():  # the kit's own wget
                return _bare(words[0]) == "wget" and not may_write_among_tests("wget", words[1:], self._places)
            case _:
                return False

    def _may_run(self, arguments: Sequence[str]) -> bool:
        """In a shell of its own: a script of the tests' own, or uv's installer."""
        script = next((each for each in arguments if not re.fullmatch(r"-[eux]+", each)), "")
        return _is_read(script) or (bool(script) and script in self._installers)

    def _may_source(self, path: str) -> bool:
        """What the kit has just written, and the tests' own scripts."""
        if _INSTALLED.fullmatch(path):
            return self._installed
        made, _, end = path.removeprefix("./").rpartition("/bin/")
        if end == "activate" and made in {each.removeprefix("./") for each in self._made}:
            self._active = True
            return True
        return _is_read(path)


def _names_by_data(first: str, words: Sequence[str]) -> bool:
    """Whether an expansion says what is set: a name from data may have a subscript, which is arithmetic."""
    if first == "printf":
        return any(option == "-v" and re.search(r"[$`]", name) for option, name in pairwise(words))
    return any("$" in word or "`" in word for word in words[1:])


def _is_told_by_data(first: str, arguments: Sequence[str]) -> bool:
    """Whether an expansion may be one of its options, or an awk's program."""
    if first != "awk":
        return any(word.startswith(("$", "`")) for word in arguments)
    rest = iter(arguments)
    for word in rest:
        if word in ("-v", "-F"):
            next(rest, "")
        elif not word.startswith(("-v", "-F")):
            return not word.startswith("'") and ("$" in word or "`" in word)
    return False


def _bare(word: str) -> str:
    """Less the quotes around it."""
    return word.replace('"', "").strip("'")


def _started(words: Sequence[str]) -> Sequence[str]:
    """What one of :data:`_STARTERS` starts; nothing where it only asks for a program's place."""
    if words[1:2] in (("-v",), ("-V",)):
        return ()
    at = 1
    while words[0] == "timeout" and at < len(words) and _LIMIT.fullmatch(words[at]):
        at += 2 if words[at] in ("-k", "-s") else 1
    return words[at:]


def _is_read(path: str) -> bool:
    """A shell script of the tests': these are read too."""
    return bool(TESTS.fullmatch(path)) and path.endswith(".sh")
