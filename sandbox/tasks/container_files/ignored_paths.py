r"""The rules of a ``.dockerignore``: ``*`` and ``?`` stop at ``/``, ``**`` is any number of folders.  Pure.

``**b`` at the beginning of a rule, with nothing but text in ``b``, matches each path that ends in ``b``; elsewhere it
means ``**/b``.  A backslash takes its meaning from the character after it.  Refused are patterns that Docker refuses,
and those that it does not read as they are written: ``*`` or ``[:`` within brackets, and a backslash before a letter,
which has another meaning in its regular expressions.  Brackets never match ``/``.

A rule is read from left to right.  A path is compared by its names, and a name without going back behind a star, so
that no rule takes more time than a multiple of what it and the path are long.  Source: github.com/moby/patternmatcher.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MOST_CHARS = 65_535
"""Maximum characters of a rule, as in Docker."""
_IN_BRACKETS = r"(?:[^\\\]\[/*?-]|\[(?!:)|\\[^A-Za-z0-9/])"
_TOKEN = re.compile(
    rf"(?P<wild>\*\*/?|\*|\?)|\[(?P<not>\^?+)(?P<ranges>(?:{_IN_BRACKETS}(?:-{_IN_BRACKETS})?)++)\]"
    r"|\\(?P<escaped>[^A-Za-z0-9/])|(?P<text>[^*?\\\[/]+|/)",
    re.DOTALL,
)
_RANGE = re.compile(rf"({_IN_BRACKETS})(?:-({_IN_BRACKETS}))?", re.DOTALL)
_BROKEN = {
    "[": "brackets that do not end, hold nothing, or hold a *, ? or / or a - that is not between two characters",
    "\\": "a backslash before a letter, a digit, a / or nothing: write / between names",
}
_SPECIAL = re.compile(r"[*?\\[\]]")
_ANY_NAME = re.compile(r"[^/]+")
_NEVER = re.compile(r"(?!)")
_MOST_WITHIN_NAMES = 4

Tokens = Sequence[str]
"""Wildcards (``**``, ``*``), ``/``, and regular expressions of other characters."""
NamePatterns = tuple[re.Pattern[str] | None, ...]
"""A pattern for each name of a path; None for any number of names."""


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line."""

    ignores: bool
    """False for a line that begins with ``!``, which keeps what it matches."""
    patterns: tuple[NamePatterns, ...]
    """Matches what any of them does."""

    def matches(self, path: str) -> bool:
        """Return whether the path or a folder above it is meant."""
        names = path.split("/")
        folders = [names[: n + 1] for n in range(len(names))]
        return any(_match(pattern, each) for pattern in self.patterns for each in folders)


def parse_ignore_rule(line: str) -> IgnoreRule | None:
    """Return the rule of a line; None for an empty line and a comment.  Raises ValueError for what is no pattern."""
    rule = line.strip()
    if not rule or line.startswith("#"):
        return None
    if len(rule) > MOST_CHARS:
        raise ValueError(f"more than {MOST_CHARS} characters")
    keeps = rule.startswith("!")
    path = posixpath.normpath(rule[1:].strip() or "/" if keeps else rule)
    path = path.lstrip("/")
    if keeps and not path:
        raise ValueError("nothing follows the !")
    tokens = list(_read_tokens(path))
    if path.startswith("**") and not path.startswith("**/") and not _SPECIAL.search(path, 2):
        tokens.insert(1, "*")
    if sum(_is_within_name(tokens, at) for at in range(len(tokens))) > _MOST_WITHIN_NAMES:
        raise ValueError(f"more than {_MOST_WITHIN_NAMES} times ** behind a part of a name")
    try:
        return IgnoreRule(not keeps, tuple(_compile(each) for each in _alternatives(tokens)))
    except re.error as error:
        raise ValueError(str(error)) from error


def _read_tokens(path: str) -> Iterator[str]:
    at, before = 0, ""
    while at < len(path):
        found = _TOKEN.match(path, at)
        if found is None:
            raise ValueError(f"{_BROKEN[path[at]]}, at character {at + 1}")
        at = found.end()
        part = _translate(found)
        if (part, before) != ("**", "**"):
            yield part
        before = part


def _translate(found: re.Match[str]) -> str:
    if wild := found["wild"]:
        return "[^/]" if wild == "?" else wild.removesuffix("/")
    if found["ranges"] is None:
        return re.escape(found["escaped"] or found["text"])
    ranges = (tuple(re.escape(end[-1]) for end in each if end) for each in _RANGE.findall(found["ranges"]))
    return f"[{'^/' if found['not'] else ''}{''.join('-'.join(each) for each in ranges)}]"


def _is_within_name(tokens: Tokens, at: int) -> bool:
    """Return whether the part is a ``**`` that may also be nothing between two parts of a name."""
    return tokens[at] == "**" and 0 < at < len(tokens) - 1 and tokens[at - 1] != "/"


def _alternatives(tokens: Tokens) -> list[Tokens]:
    """Return rules that match together what the rule does, and in which each ``**`` is a whole name or the end:
    ``a**b`` means ``ab`` or ``a*/**/b``."""
    for at in range(len(tokens)):
        if _is_within_name(tokens, at):
            before, after = tokens[:at], tokens[at + 1 :]
            return [*_alternatives([*before, *after]), *_alternatives([*before, "*", "/", "**", *after])]
    return [tokens]


def _compile(tokens: Tokens) -> NamePatterns:
    names: list[re.Pattern[str] | None] = []
    pieces = [""]
    for part in tokens:
        if part == "/":
            names.append(_compile_name(pieces))
            pieces = [""]
        elif part == "**" and pieces == [""]:
            names.append(None)
        elif part.startswith("*"):
            pieces.append("")
        else:
            pieces[-1] += part
    ends_in_any = names[-1:] == [None] and pieces == [""]
    return (*names, _ANY_NAME if ends_in_any else _compile_name(pieces))


def _compile_name(pieces: Sequence[str]) -> re.Pattern[str]:
    """Return the pattern of a name with a star between each two pieces."""
    first, *others = pieces
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1])
    return re.compile(first + middle + (f"[^/]*{others[-1]}" if others else ""), re.DOTALL)


def _match(pattern: NamePatterns, names: Sequence[str]) -> bool:
    at = place = 0
    any_at = any_from = -1
    while place < len(names):
        expected = pattern[at] if at < len(pattern) else _NEVER
        if expected is None:
            any_at, any_from = at, place
            at += 1
        elif expected.fullmatch(names[place]):
            at, place = at + 1, place + 1
        elif any_at < 0:
            return False
        else:
            any_from += 1
            at, place = any_at + 1, any_from
    return all(each is None for each in pattern[at:])
