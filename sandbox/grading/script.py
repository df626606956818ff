"""The simple commands of a shell script, for a reader who asks what it starts.  Pure.

Quotes, substitutions, here-documents, functions and ``case`` are known; nothing is expanded: a word is as it is
written.  What is not understood raises Unreadable.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BLANKS = re.compile(r"(?:[ \t]|(?<![^\s;&|()])#[^\n]*)*")
_FUNCTION = re.compile(r"\(\s*\)")
_OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|]")
_REDIRECTION = re.compile(r"<<<|<<-?|>>|>\||<>|[<>]&|[<>]")
_ESAC = re.compile(r"esac\b")
_RESERVED = frozenset(("if", "then", "else", "elif", "fi", "do", "done", "while", "until", "!", "time"))
_ENDS_WORD = " \t\n;&|()<>"


class Unreadable(Exception):
    """Only a shell could tell what this is."""


class Command(NamedTuple):
    words: tuple[str, ...]
    """With their quotes; reserved words before it and redirections are left out."""
    piped: bool
    """It reads what the command before it prints."""
    within: str
    """The function whose body it is in; empty for none."""


class Script(NamedTuple):
    commands: tuple[Command, ...]
    """Those in substitutions come before the one that they are part of."""
    functions: frozenset[str]


def read_script(text: str) -> Script:
    """Raises Unreadable."""
    reader = _Reader(text.replace("\\\n", " "))
    reader.read()
    return Script(tuple(reader.commands), frozenset(reader.functions))


class _Reader:
    def __init__(self, text: str) -> None:
        self.commands: list[Command] = []
        self.functions: set[str] = set()
        self._text, self._at = text, 0
        self._named = ""
        """The function whose body is next."""
        self._bodies: list[str] = []
        self._cases = 0
        self._ends: list[str] = []
        self._documents: list[str] = []

    def read(self, end: str = "") -> None:
        """Commands up to ``end``, or to the end of the text."""
        self._ends.append(end)
        words: list[str] = []
        piped, groups = False, 0
        while True:
            self._skip(_BLANKS)
            char = self._here()
            if char == end and not groups:
                break
            if not char:
                raise Unreadable(f"{end or ')'} is missing")
            if words[:1] == ["[["] and words[-1] != "]]" and char in "\n;&|()<>":
                self._at += 1
            elif char == "\n":
                self._add(words, piped)
                piped = False
                self._at += 1
                self._skip_documents()
            elif char in "<>" or self._text.startswith("&>", self._at):
                self._redirection(words)
            elif operator := _OPERATOR.match(self._text, self._at):
                self._at = operator.end()
                self._add(words, piped)
                piped = operator[0] in ("|", "|&")
                if operator[0].startswith((";;", ";&")):
                    self._skip_pattern()
            elif char == "(":
                groups += self._parenthesis(words)
            elif char == ")" and groups:
                self._at += 1
                self._add(words, piped)
                groups -= 1
            else:
                self._take(self._word(), words, piped)
        self._at += len(end)
        self._add(words, piped)
        self._ends.pop()

    def _add(self, words: list[str], piped: bool) -> None:
        if words:
            within = next((name for name in reversed(self._bodies) if name), "")
            self.commands.append(Command(tuple(words), piped, within))
            words.clear()

    def _take(self, word: str, words: list[str], piped: bool) -> None:
        """One more word of a command, or what the shell itself reads."""
        if not word:
            raise Unreadable("a parenthesis stands alone")
        if word.isdigit() and self._text.startswith(("<", ">"), self._at):
            return
        if words or word not in {"{", "}", "esac", *_RESERVED}:
            words.append(word)
        elif word == "{":
            self._bodies.append(self._named)
            self._named = ""
        elif word == "}" and self._bodies:
            self._bodies.pop()
        elif word == "esac":
            self._cases -= 1
        if words[:1] == ["case"] and words[2:] == ["in"]:
            self._add(words, piped)
            self._cases += 1
            self._skip_pattern()
        elif words[:1] == ["function"] and len(words) == 2:
            self._define(words.pop())
            words.clear()
            self._skip(_BLANKS)
            self._skip(_FUNCTION)

    def _define(self, name: str) -> None:
        self._named = name
        self.functions.add(name)

    def _parenthesis(self, words: list[str]) -> int:
        """1 for one that opens a group."""
        if self._text.startswith("((", self._at) and not words:
            self._arithmetic()
            return 0
        function = _FUNCTION.match(self._text, self._at)
        if function and len(words) == 1:
            self._define(words.pop())
            self._at = function.end()
            return 0
        if words or self._named:
            raise Unreadable("a parenthesis within a command")
        self._at += 1
        return 1

    def _redirection(self, words: list[str]) -> None:
        if self._text.startswith(("<(", ">("), self._at):
            self._at += 2
            words.append("<()")
            self.read(")")
            return
        self._at += self._text.startswith("&", self._at)
        operator = _REDIRECTION.match(self._text, self._at)
        if operator is None:
            raise Unreadable("a redirection")
        self._at = operator.end()
        self._skip(_BLANKS)
        target = self._word()
        if operator[0] in ("<<", "<<-"):
            self._documents.append(target)

    def _here(self) -> str:
        """The next character; empty at the end."""
        return self._text[self._at : self._at + 1]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        if found := pattern.match(self._text, self._at):
            self._at = found.end()

    def _skip_documents(self) -> None:
        for word in self._documents:
            name = word.strip("\"'\\")
            end = re.compile(rf"^\t*{re.escape(name)}$", re.MULTILINE).search(self._text, self._at)
            if end is None:
                raise Unreadable(f"{name} is missing")
            if name == word and re.search(r"\$\(|`", self._text[self._at : end.start()]):
                raise Unreadable("a substitution in a here-document")
            self._at = end.end()
        self._documents.clear()

    def _skip_pattern(self) -> None:
        """What a branch of a ``case`` begins with."""
        while self._here().isspace() or self._here() == "#":
            self._skip(_BLANKS)
            self._at += self._here() == "\n"
        if not self._cases or _ESAC.match(self._text, self._at):
            return
        while self._here() != ")":
            if self._here() in tuple("(| \t\n"):
                self._at += 1
            elif not self._word():
                raise Unreadable("a branch of a case")
        self._at += 1

    def _word(self) -> str:
        start = self._at
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "(" and re.fullmatch(r"\w+\+?=", self._text[start : self._at]):
                self._array()
            elif char in _ENDS_WORD or char == self._ends[-1]:
                break
            elif char == "'":
                self._at = self._after("'", self._at + 1)
            elif char == '"':
                self._at += 1
                self._until('"')
            else:
                self._one(char)
        return self._text[start : self._at]

    def _until(self, end: str) -> None:
        while not self._text.startswith(end, self._at):
            if self._at >= len(self._text):
                raise Unreadable(f"{end} is missing")
            if self._text[self._at] == '"':
                self._at += 1
                self._until('"')
            else:
                self._one(self._text[self._at])
        self._at += len(end)

    def _one(self, char: str) -> None:
        """One character, or what it begins inside a word or double quotes."""
        if char == "\\":
            self._at += 2
        elif char == "`":
            self._at += 1
            self.read("`")
        elif self._text.startswith("$((", self._at):
            self._at += 1
            self._arithmetic()
        elif self._text.startswith("$(", self._at):
            self._at += 2
            self.read(")")
        elif self._text.startswith("${", self._at):
            self._at += 2
            self._until("}")
        elif self._text.startswith("$'", self._at):
            raise Unreadable("escapes in quotes")
        else:
            self._at += 1

    def _arithmetic(self) -> None:
        start, self._at = self._at, self._after("))", self._at)
        if re.search(r"\$\((?!\()|`", self._text[start : self._at]):
            raise Unreadable("a substitution in arithmetic")

    def _array(self) -> None:
        self._at += 1
        while self._here() != ")":
            if self._here().isspace():
                self._at += 1
            elif not self._word():
                raise Unreadable("an array without an end")
        self._at += 1

    def _after(self, end: str, start: int) -> int:
        found = self._text.find(end, start)
        if found < 0:
            raise Unreadable(f"{end} is missing")
        return found + len(end)
