"""Converts the values of a compose file's keys, and refuses those that no sandbox can follow.  Pure.

Source: the Compose specification.
"""

from __future__ import annotations

import posixpath
import re
from typing import Annotated, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def _mapping(value: object) -> object:
    """Convert ``[A=b]`` to ``{A: b}``; a name alone has no value."""
    if isinstance(value, list):
        pairs = (str(each).partition("=") for each in cast("list[object]", value))
        return {key: text if equals else None for key, equals, text in pairs}
    return value


def _size(value: object) -> object:
    """Convert ``2G``, ``512m`` or bytes to whole MiB, at least 1. Docker's 0 means no limit."""
    if isinstance(value, bool) or value is None:
        return value
    found = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)\s*([kmgt]?)i?b?", str(value).strip().lower())
    if not found:
        raise ValueError(f"{value!r} is not a size: write 512m or 2g")
    if not float(found[1]):
        raise ValueError(f"{value!r} means no limit, but every sandbox has one: write 512m or 2g")
    return max(
        1, -(-int(float(found[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}[found[2]]) >> 20)
    )


def _seconds(value: object) -> object:
    """Convert ``1m30s`` to seconds."""
    text = str(value)
    if not re.fullmatch(r"(\d{1,15}(\.\d+)?(us|ms|s|m|h))+|0", text):
        raise ValueError(f"{value!r} is not a duration: write 1m30s")
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
    return sum(float(count) * units[unit] for count, unit in re.findall(r"(?<![\d.])([\d.]++)(us|ms|s|m|h)", text))


def _by_name(value: object) -> object:
    """Convert ``[a, b]`` to ``{a: {}, b: {}}``."""
    if not isinstance(value, list):
        return value
    names = cast("list[object]", value)
    return {each: dict[str, object]() for each in names} if all(isinstance(each, str) for each in names) else names


def as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def absolute_path(value: str) -> str:
    """Return the path as Docker cleans it; an empty one names none.  Raises ValueError for one that is not absolute."""
    if value and not value.startswith("/"):
        raise ValueError(f"{value!r} is not an absolute path: write /{value}")
    return value and posixpath.normpath(f"/{value.lstrip('/')}")


def _host_name(value: str) -> str:
    if value and not _HOST_NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not a host name: it has up to 63 letters, digits, '-', '_' and '.'")
    return value


ComposeMapping = Annotated[dict[str, str | int | float | bool | None], BeforeValidator(_mapping)]
Mebibytes = Annotated[int, BeforeValidator(_size)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Cpus = Annotated[float, Field(gt=0)]
Pids = Annotated[int, Field(gt=0)]
ByName = BeforeValidator(_by_name)
HostName = Annotated[str, AfterValidator(_host_name)]
Ignored = object
"""Value of a key without effect."""


class ComposeSection(BaseModel):
    """A mapping of keys, of which unknown ones are problems."""

    model_config = ConfigDict(extra="forbid")


def refuse(why: str, *unless: object) -> AfterValidator:
    """Return a check that fails with ``why``, unless a key says nothing or one of these values."""

    def check(value: object) -> object:
        if value and value not in unless:
            raise ValueError(why)
        return value

    return AfterValidator(check)


def _one(value: int) -> int:
    if value != 1:
        raise ValueError("one container of a service is started: write a service for each")
    return value


One = Annotated[int, AfterValidator(_one)]
"""Number of containers of a service."""
