"""Whose programs run a task's tests: the kit's or the container's.  Pure.

Read from the script: each word that names an interpreter, a test runner, a package tool or a system path makes it the
container's, unless the kit stands in for it (:mod:`sandbox.kit.answers`).  In doubt it is the container's.  What the
tests themselves start is their own affair: ``subprocess.run(["git", …])`` in a test asks the container's git.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from sandbox.kit.answers import PROGRAMS, Done, Installer, Other, Run, Venv, answer
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


_FOREIGN = re.compile(
    r"(?<![\w.-])(?:"
    r"(?:/usr(?:/local)?)?/s?bin/[\w.-]+|(?:/opt|/root|/home)/\S+|"
    r"(?:python|pip|pypy)[\d.]*|pytest|py\.test|tox|nox|poetry|hatch|conda|mamba|node|npm|npx|pnpm|yarn|deno|bun|"
    r"go|cargo|rustc|java|javac|mvn|gradle|make|cmake|ctest|gcc|g\+\+|cc|clang|ruby|rspec|bundle|perl|php|Rscript|"
    r"julia|lua|ghc|stack|cabal|dotnet|swift|sbt|bazel|env|sudo|su|chroot"
    r")(?![\w-])"
)
_SETTINGS = re.compile(r"(?:^|\s)(?:PATH|HOME|ENV|BASH_ENV|(?:PYTHON|PYTEST_|UV_|LD_)\w*)=")
_INSTALLED = re.compile(r"[\"']?(?:\$HOME|\$\{HOME\}|~|/root)/\.local/bin/env[\"']?")
_TESTS = re.compile(r"[\"']?(?:\$TEST_DIR|\$\{TEST_DIR(?::-/tests)?\}|/tests)(?:/[\w./:-]*)?[\"']?")
_PARTS = re.compile(r"\n|;|&&|\|\||\||&|\$\(|`|(?<![$\w])\{(?=\s)|(?<=\s)\}|\(|\)")
_BEFORE = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "time", "exec", "command"))


def isolation_of(script: str, tests: Mapping[str, bytes], *, verifier: bool = True) -> Isolation:
    """Of a test script, with the shell scripts that it brings along."""
    if not shell_of(script, verifier=verifier).ours:
        return Isolation.IMAGE
    beside = (data.decode(errors="replace") for path, data in tests.items() if path.endswith(".sh"))
    return (
        Isolation.KIT if all(_Reader(verifier=verifier).ours(each) for each in (script, *beside)) else Isolation.IMAGE
    )


class _Reader:
    """Reads one script from top to bottom."""

    def __init__(self, *, verifier: bool) -> None:
        self._verifier = verifier
        self._installed = False
        self._made: set[str] = set()
        self._active = False

    def ours(self, script: str) -> bool:
        return all(self._command(part) for part in _commands(script))

    def _command(self, part: str) -> bool:
        words = part.split()
        while words and words[0] in _BEFORE:
            words.pop(0)
        if not words:
            return True
        if _SETTINGS.search(part):
            return False
        first, *arguments = words
        if first in PROGRAMS:
            return self._verifier and self._stands_in(first, arguments)
        if first in ("source", "."):
            return bool(arguments) and self._may_source(arguments[0])
        if self._active and first in ("pytest", "py.test"):
            return _names_tests(arguments)
        return not _FOREIGN.search(part)

    def _stands_in(self, program: str, arguments: Sequence[str]) -> bool:
        plain = [word.strip("\"'") for word in arguments if not re.match(r"\d?[<>]", word)]
        match answer(program, plain):
            case Done():
                return True
            case Installer():
                self._installed = True
                return True
            case Venv(path):
                self._made.add(path)
                return True
            case Run(["pytest", *rest]):
                return _names_tests(rest)
            case Other():
                return program == "wget"  # the kit's own
            case _:
                return False

    def _may_source(self, path: str) -> bool:
        """What the kit has just written, and the tests' own files: those are read too."""
        if _INSTALLED.fullmatch(path):
            return self._installed
        made, _, end = path.strip("\"'").removeprefix("./").rpartition("/bin/")
        if end == "activate" and made in {each.removeprefix("./") for each in self._made}:
            self._active = True
            return True
        return bool(_TESTS.fullmatch(path))


def _names_tests(arguments: Sequence[str]) -> bool:
    """Without one, pytest looks for tests and settings in the working directory."""
    return any(_TESTS.fullmatch(each) for each in arguments)


def _commands(script: str) -> Iterator[str]:
    """Pieces of a script that each begin with a command, or with less; comments left out."""
    text = re.sub(r"\\\n\s*", " ", script)
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return (part.strip() for part in _PARTS.split("\n".join(lines)) if part.strip())
