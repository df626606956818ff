"""Variables in the texts of a compose file.  Pure.

``$X`` and ``${X}``; ``${X:-text}`` and ``${X-text}`` where it is unknown; ``${X:+text}`` and ``${X+text}`` where it is
known; ``${X:?why}`` and ``${X?why}``, which must be known; ``$$`` is a dollar sign.  Such a text may hold variables.
Source: the Compose specification, "Interpolation".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from sandbox.tasks.problems import TaskProblems

_HOST = "nothing is taken from the host's environment"
_TOKEN = re.compile(r"\$\$|\$(?P<bare>\w+)|\$\{(?P<name>\w+):?(?P<sign>[-+?]?)|(?P<broken>\$\{)|\}|[^$}]+|\$")


class _BrokenError(ValueError):
    """Not what Compose takes."""


def substitute_variables(value: object, variables: Mapping[str, str], name: str, problems: TaskProblems) -> object:
    """``value`` with the variables in its texts put in; what is unknown or broken is noted for the file ``name``."""
    if isinstance(value, str):
        unknown: list[str] = []
        try:
            text, _ = _filled(value, 0, variables, unknown)
        except _BrokenError:
            problems.add(f"{name}: {value!r} has a variable that is none", "write $$ for a dollar sign")
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


def _filled(text: str, start: int, variables: Mapping[str, str], unknown: list[str]) -> tuple[str, int]:
    """From ``start`` to the end, or to the brace that closes what was open there; and where that is."""
    made, at = "", start
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None or token["broken"]:
            raise _BrokenError
        if token[0] == "}" and start:
            return made, at
        at = token.end()
        if token["name"]:
            value, at = _braced(text, token, variables, unknown)
            made += value
        elif token["bare"]:
            made += _known(token["bare"], variables, unknown)
        else:
            made += "$" if token[0] == "$$" else token[0]
    if start:
        raise _BrokenError
    return made, at


def _braced(text: str, token: re.Match[str], variables: Mapping[str, str], unknown: list[str]) -> tuple[str, int]:
    key, sign, needed = token["name"], token["sign"], list[str]()
    other, end = _filled(text, token.end(), variables, needed)
    if other and not sign:
        raise _BrokenError
    if sign in {"-", "+"} and (key in variables) is (sign == "+"):
        unknown += needed
        return other, end + 1
    if sign == "+":
        return "", end + 1
    return _known(key, variables, unknown, other if sign == "?" else ""), end + 1


def _known(key: str, variables: Mapping[str, str], unknown: list[str], why: str = "") -> str:
    if key not in variables:
        unknown.append(f"{key} is unknown" + (f": {why}" if why else ""))
    return variables.get(key, "")
