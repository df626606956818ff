"""The rules of a ``.dockerignore``: ``*`` and ``?`` stop at ``/``, ``**`` is any number of folders.  Pure.

A path is compared by its names, and a name without going back behind a star, so that no rule takes more time than a
multiple of what it and the path are long.  Source: github.com/moby/patternmatcher.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

_TOKEN = re.compile(r"(\*+|\?|\[[^]]*\])")
_ANY_NAME = re.compile(r"[^/]+")
_LEADING = re.compile(r"(^|/)\*\*+(?=[^/*])")
"""``**b`` means ``**/b``."""
_TRAILING = re.compile(r"(?<=[^/*])\*\*+/?")
"""``a**b`` means ``ab`` or ``a*/**/b``."""
_MOST_TRAILING = 4

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
    if not rule or rule.startswith("#"):
        return None
    path = posixpath.normpath(rule.removeprefix("!").strip()).lstrip("/")
    path = _LEADING.sub(r"\1**/", path)
    if len(_TRAILING.findall(path)) > _MOST_TRAILING:
        raise ValueError(f"more than {_MOST_TRAILING} times ** behind a part of a name")
    try:
        patterns = tuple(_compile(each.split("/")) for each in _alternatives(path))
    except re.error as error:
        raise ValueError(str(error)) from error
    return IgnoreRule(not rule.startswith("!"), patterns)


def _alternatives(path: str) -> list[str]:
    """Return rules that match together what the rule does, and in which each ``**`` is a whole name."""
    found = _TRAILING.search(path)
    if found is None:
        return [path]
    before, after = path[: found.start()], path[found.end() :]
    return _alternatives(before + after) + _alternatives(f"{before}*/**/{after}") if after else [f"{before}*"]


def _compile(names: Sequence[str]) -> NamePatterns:
    patterns = [None if name and not name.strip("*") and len(name) > 1 else _compile_name(name) for name in names]
    return (*patterns, _ANY_NAME) if patterns[-1] is None else tuple(patterns)


def _compile_name(name: str) -> re.Pattern[str]:
    pieces = [""]
    for part in _TOKEN.split(name):
        if part.startswith("*"):
            pieces.append("")
        else:
            pieces[-1] += "[^/]" if part == "?" else _literal(part)
    first, *others = pieces
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1])
    return re.compile(first + middle + (f"[^/]*{others[-1]}" if others else ""))


def _literal(part: str) -> str:
    """Return the expression of a part without stars; within brackets only ``^``, ``-`` and a backslash have a
    meaning."""
    return re.sub(r"(?<!^)[\[&~|]|(?<=-)-", r"\\\g<0>", part) if part.startswith("[") else re.escape(part)


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


_NEVER = re.compile(r"(?!)")
