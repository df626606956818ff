"""What the words of a script may be: places among the tests, or certainly elsewhere, or data.  Pure.

A word leads elsewhere where it is written out, the script's own variables included.  A name from data, a relative one
after ``cd`` to who knows where, and ``/``, over which an archive would be laid, may lead among the tests.  Links are
not followed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import product

from sandbox.grading.script import Script

_GIVEN = {"TEST_DIR": "/tests", "HOME": "/root", "PWD": ".", "RANDOM": "0", "SECONDS": "0"}
"""Variables that a script need not set."""
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:\[[@*\d]+\]|:?-([^${}`]*))?\}|[$?#!])")
_ONE_WORD = re.compile(
    r"\$\(date(?: \+[\w%:.-]+)?\)|\$\(\([^()]*\)\)|\$\{#\w+(?:\[[@*]\])?\}|"
    r"\$\((?:[^()|;&\n]+\|)* *(?:wc -[lcwm]|grep -c\w*)[^()|;&$`*?[\n]*(?:\|\| *(?:true|echo 0) *)?\)"
)
"""Times and numbers, whatever the data."""
_FRESH = re.compile(r"\$\(mktemp(?: -[dtqu]+)*\)")
_ASSIGNS = re.compile(r"(\w+)(\+?)=(.*)", re.DOTALL)
_NAMED = re.compile(r"[\w.+-]+")
_DATA = re.compile(r"[{$`]")
_GLOB = re.compile(r"[*?[]")
_MOST = 64
QUOTES = str.maketrans("", "", "\"'\\")


class Places:
    """Of scripts that share their variables: a name may have any value that one of them gives it."""

    def __init__(self, scripts: Sequence[Script], setters: frozenset[str]) -> None:
        """``setters``: commands that set what their arguments name."""
        self._texts: dict[str, set[str]] = {}
        self._read: dict[str, frozenset[str] | None] = {}
        """None for a name that has data for a value."""
        calls = [command.words for script in scripts for command in script.commands]
        for words in calls:
            self._learn(words, sets=words[0].translate(QUOTES) in setters)
        for name, over in (loop for script in scripts for loop in script.loops):
            self._texts.setdefault(name, set()).update(over)
        self.strays = False
        """Whether the working directory may be among the tests."""
        self.strays = any(map(self._leads_astray, calls))

    def _learn(self, words: Sequence[str], *, sets: bool) -> None:
        for word in words:
            if found := _ASSIGNS.fullmatch(word):
                self._texts.setdefault(found[1], set()).update(_elements(found[3]))
                if found[2]:
                    self._read[found[1]] = None
            elif sets:
                self._read[word.translate(QUOTES)] = None

    def _leads_astray(self, words: Sequence[str]) -> bool:
        names = [word.translate(QUOTES) for word in words]
        at = next((at for at, name in enumerate(names) if name in ("cd", "pushd")), len(words))
        return any(self.may_be_tests(word) for word in words[at + 1 :] if not word.startswith("-"))

    def may_be_tests(self, word: str) -> bool:
        read = self.read(word)
        return read is None or any(map(self._is_among_tests, read))

    def is_data(self, word: str) -> bool:
        """Whether only running it would tell what it is."""
        read = self.read(word)
        return read is None or any(map(_DATA.search, read))

    def _is_among_tests(self, path: str) -> bool:
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts or _DATA.search(path):
            return True
        if path.startswith("/"):
            return not parts or parts[0] in ("tests", "proc") or not _NAMED.fullmatch(parts[0])
        if path.startswith("~"):
            return parts[0] != "~"
        return path not in ("", "-") and (self.strays or "tests" in parts or bool(_GLOB.search(path)))

    def read(self, word: str) -> frozenset[str] | None:
        """What it may be, without quotes; None where only running it would tell."""
        word = _ONE_WORD.sub("0", _FRESH.sub("/tmp/0", word))  # noqa: S108  a name in another machine
        choices = [self._value(found) for found in _VARIABLE.finditer(word)]
        known = [each for each in choices if each is not None]
        if len(known) < len(choices) or math.prod(map(len, known)) > _MOST:
            return None
        return frozenset(_filled(word, chosen).translate(QUOTES) for chosen in product(*known))

    def _value(self, found: re.Match[str]) -> frozenset[str] | None:
        name = found[1] or found[2]
        if not name:
            return frozenset("0")
        values = self._named(name)
        if found[3] is None or values is None:
            return values or None
        return values | {found[3]}

    def _named(self, name: str) -> frozenset[str] | None:
        if name not in self._read:
            self._read[name] = None  # one that is made of itself
            read = [self.read(text) for text in self._texts.get(name, ())]
            known = [each for each in read if each is not None]
            given = {_GIVEN[name]} if name in _GIVEN else set[str]()
            if len(known) == len(read) and not name.isdigit():
                self._read[name] = frozenset(given.union(*known))
        return self._read[name]


def _elements(value: str) -> list[str]:
    """What is assigned, one by one for an array."""
    return value[1:-1].split() if value.startswith("(") else [value]


def _filled(word: str, values: Sequence[str]) -> str:
    rest = iter(values)
    return _VARIABLE.sub(lambda _: next(rest), word)
