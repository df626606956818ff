"""Finds JSON objects in the text of a policy, which may write anything around and into them.

All of it takes linear time.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, cast

import orjson

_DEPTH = 100
"""The depth to which a value may be nested: less than what any encoder of it bears."""
_MOST_INVALID = 100
"""After so many invalid objects all else is text: the place of an error takes time that grows with the text."""
_JSON = json.JSONDecoder(strict=False)
"""Finds the end of a value, even of one whose texts have line breaks; whether it is valid, orjson decides."""
_TOO_DEEP = f"it is nested deeper than {_DEPTH} values"
_BEGIN = re.compile(r'\{\s*+(?:\}|"(?:[^"\\]|\\.)*+"\s*+:)', re.DOTALL)
"""Matches the beginning of a JSON object; other braces are text."""


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of these pairs.  Raises ValueError if a key is given twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"{key!r} is given twice")
    return made


_KEYS_ONCE = json.JSONDecoder(object_pairs_hook=_once)


class InvalidObjectError(Exception):
    """A text is not valid JSON, or begins as a JSON object does and is no valid one."""

    def __init__(self, problem: str, end: int | None = None) -> None:
        super().__init__(problem)
        self.end = end
        """The place where reading ended; None if it is unknown."""


class SplitText(NamedTuple):
    """A text divided into its outermost JSON objects and what is around them."""

    objects: list[dict[str, object]]
    texts: list[str]
    """One more than objects."""
    problem: InvalidObjectError | None = None
    """The first object that is not valid; it is part of the texts."""


def find_json_end(text: str, begin: int) -> int:
    """Return where the JSON value at ``begin`` ends.  Raises :class:`InvalidObjectError` if there is none."""
    try:
        return _JSON.raw_decode(text, begin)[1]
    except json.JSONDecodeError as error:
        raise InvalidObjectError(str(error), error.pos) from error
    except ValueError as error:
        raise InvalidObjectError(str(error)) from error
    except RecursionError as error:
        raise InvalidObjectError(_TOO_DEEP) from error


def read_json(text: str) -> object:
    """Return a JSON value.  Raises :class:`InvalidObjectError` if it is not valid or nested too deeply, or if an object
    has a key twice."""
    try:
        value = orjson.loads(text)
        _KEYS_ONCE.decode(text)
    except ValueError as error:
        raise InvalidObjectError(str(error)) from error
    except RecursionError as error:
        raise InvalidObjectError(_TOO_DEEP) from error
    level = [value]
    for _ in range(_DEPTH):
        if not (level := [inner for each in level for inner in _inner(each)]):
            return value
    raise InvalidObjectError(_TOO_DEEP)


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


class FoundObject(NamedTuple):
    """A JSON object in a text."""

    value: dict[str, object]
    begin: int
    end: int


def find_object(text: str, at: int) -> FoundObject | None:
    """Return the first object from ``at`` on.  Raises :class:`InvalidObjectError` if it is not valid."""
    if (found := _BEGIN.search(text, at)) is None:
        return None
    begin = found.start()
    end = find_json_end(text, begin)
    try:
        return FoundObject(cast("dict[str, object]", read_json(text[begin:end])), begin, end)
    except InvalidObjectError as error:
        raise InvalidObjectError(str(error), end) from error


def split_objects(text: str) -> SplitText:
    """Divide a text.  An object that is not valid is text as far as it was read; what follows may be part of it."""
    objects: list[dict[str, object]] = []
    texts: list[str] = []
    problems: list[InvalidObjectError] = []
    at = end = 0
    while True:
        try:
            if (found := find_object(text, at)) is None:
                return SplitText(objects, [*texts, text[end:]], next(iter(problems), None))
        except InvalidObjectError as error:
            problems.append(error)
            at = len(text) if error.end is None or len(problems) == _MOST_INVALID else error.end
            continue
        objects.append(found.value)
        texts.append(text[end : found.begin])
        at = end = found.end


def find_object_begin(text: str) -> int:
    """Return where a text begins as a JSON object does; its end if it does nowhere."""
    found = _BEGIN.search(text)
    return found.start() if found else len(text)
