"""Variables in the texts of Dockerfiles and compose files.  Pure.

``$X`` and ``${X}``; ``${X:-text}`` and ``${X-text}``, text if X is unknown; ``${X:+text}`` and ``${X+text}``, text if X
is known; ``${X:?why}`` and ``${X?why}``, which must be known; ``$$`` is a dollar sign.  The texts may hold variables.
Source: the Compose specification, "Interpolation".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, cast

from sandbox.tasks.problems import TaskProblems

_HOST = "no value is taken from the host's environment"
_SHOWN = 100
_TOKEN = re.compile(
    r"\$\$|\$(?P<bare>\w+)|\$\{(?P<name>\w+)(?P<colon>:?)(?P<sign>[-+?]?)|(?P<broken>\$\{)|\}|[^$}]+|\$"
)


_MAX_DEPTH = 50
MOST_CHARS = 65_535
"""Maximum characters of a text with its variables replaced, as of a line in Docker's parser."""


class BrokenVariableError(ValueError):
    """A ``$`` does not begin a variable that Compose or Docker would accept, or variables are nested too deeply."""


class LongValueError(BrokenVariableError):
    """A text would be too long with its variables replaced."""

    def __init__(self) -> None:
        super().__init__(f"its variables make it longer than {MOST_CHARS} characters")


class Expansion(NamedTuple):
    """A text with its variables replaced."""

    text: str
    unknown: tuple[str, ...]
    """One phrase for each unknown variable, which was replaced by the empty text."""


def expand_variables(text: str, variables: Mapping[str, str], *, empty_is_unset: bool = False) -> Expansion:
    """Replace the variables in ``text``.

    ``empty_is_unset``: the default of ``${X:-default}`` also applies if X is empty.  Raises BrokenVariableError.
    """
    unknown: list[str] = []
    expanded, _ = _Expander(variables, empty_is_unset).expand(text, 0, unknown)
    return Expansion(expanded, tuple(unknown))


def substitute_variables(value: object, variables: Mapping[str, str], name: str, problems: TaskProblems) -> object:
    """Replace the variables in every text of ``value``; problems are those of the file ``name``."""
    if isinstance(value, str):
        try:
            text, unknown = expand_variables(value, variables)
        except LongValueError as error:
            problems.add(f"{name}: {value[:_SHOWN]!r} is too long", str(error))
            return ""
        except BrokenVariableError:
            problems.add(f"{name}: {value!r} has an invalid variable", "write $$ for a dollar sign")
            return value
        for each in unknown:
            problems.add(f"{name}: variable {each}", _HOST)
        return text
    if isinstance(value, list):
        return [substitute_variables(each, variables, name, problems) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        return {key: substitute_variables(each, variables, name, problems) for key, each in pairs}
    return value


class _Expander:
    def __init__(self, variables: Mapping[str, str], empty_is_unset: bool) -> None:
        self._variables, self._empty_is_unset = variables, empty_is_unset

    def expand(self, text: str, start: int, unknown: list[str], depth: int = 0) -> tuple[str, int]:
        """Expand from ``start`` to the end, or to the closing brace; return that position too."""
        if depth > _MAX_DEPTH:
            raise BrokenVariableError
        expanded, at = "", start
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None or token["broken"]:
                raise BrokenVariableError
            if token[0] == "}" and start:
                return expanded, at
            at = token.end()
            if token["name"]:
                value, at = self._braced(text, token, unknown, depth)
                expanded += value
            elif token["bare"]:
                expanded += self._value_of(token["bare"], unknown)
            else:
                expanded += "$" if token[0] == "$$" else token[0]
            if len(expanded) > max(MOST_CHARS, len(text)):
                raise LongValueError
        if start:
            raise BrokenVariableError
        return expanded, at

    def _braced(self, text: str, token: re.Match[str], unknown: list[str], depth: int) -> tuple[str, int]:
        key, sign, needed = token["name"], token["sign"], list[str]()
        other, end = self.expand(text, token.end(), needed, depth + 1)
        if other and not sign:
            raise BrokenVariableError
        known = bool(self._variables.get(key)) if self._empty_is_unset and token["colon"] else key in self._variables
        if sign in {"-", "+"} and known is (sign == "+"):
            unknown += needed
            return other, end + 1
        if sign == "+":
            return "", end + 1
        return self._value_of(key, unknown, other if sign == "?" else ""), end + 1

    def _value_of(self, key: str, unknown: list[str], why: str = "") -> str:
        if key not in self._variables:
            unknown.append(f"{key} is unknown" + (f": {why}" if why else ""))
        return self._variables.get(key, "")
