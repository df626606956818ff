"""Encodes the fields that a format cannot hold: ``longshore.yaml`` in a folder, ``longshore`` in a row.

Every writer reads back what it is about to write, and each field that does not come back equal is stored by its own
name. So every task survives every format, and what a format can express stays in its own form. Bytes that are not text
are ``base64:`` and their base64.
"""

from __future__ import annotations

import base64
import dataclasses
import difflib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, cast, get_type_hints

from pydantic import TypeAdapter, ValidationError

from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task

_BASE64 = "base64:"
_ADAPTERS: dict[str, TypeAdapter[object]] = {
    name: TypeAdapter(hint) for name, hint in get_type_hints(Task).items() if name != "id"
}


def differing_fields(task: Task, seen: Task) -> dict[str, object]:
    """Return the plain value of each field in which ``task`` differs from ``seen``, by name."""
    return {
        name: _plain(getattr(task, name)) for name in _ADAPTERS if getattr(task, name) != getattr(seen, name)
    }  # fmt: skip


def apply_fields(task: Task, given: object, problems: TaskProblems, where: str) -> Task:
    """Return ``task`` with the fields of :func:`differing_fields`; what is invalid becomes a problem."""
    if not isinstance(given, dict):
        problems.add(f"{where} is not a mapping", "it maps names of a task's fields to values")
        return task
    values: dict[str, Any] = {}
    for name, value in cast("dict[object, object]", given).items():
        key = str(name)
        if key not in _ADAPTERS:
            near = difflib.get_close_matches(key, _ADAPTERS, 1)
            problems.add(
                f"{where}: {key} is not a field of a task", f"did you mean {near[0]}?" if near else "remove it"
            )
            continue
        try:
            values[key] = _ADAPTERS[key].validate_python(_decode_bytes(key, value))
        except ValidationError as error:
            problems.add_validation_error(where, error, at=key)
        except ValueError as error:
            problems.add(f"{where}: {key}", f"neither text nor base64: {error}")
    return dataclasses.replace(task, **values)


def _plain(value: object) -> object:
    """Convert ``value`` to types of JSON and YAML; of a dataclass, only the fields by which it
    is compared and that differ from their defaults."""
    match value:
        case bytes():
            return _text(value)
        case StrEnum():
            return value.value
        case tuple() | list():
            return [_plain(each) for each in cast("list[object]", value)]
        case frozenset():
            return sorted(cast("frozenset[str]", value))
        case dict():
            return {key: _plain(each) for key, each in cast("dict[str, object]", value).items()}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {
                field.name: _plain(getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.compare and getattr(value, field.name) != _default(field)
            }
        case _:
            return value


def _default(field: dataclasses.Field[Any]) -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = _BASE64
    return _BASE64 + base64.b64encode(data).decode() if text.startswith(_BASE64) or "\0" in text else text


def _bytes(text: object) -> object:
    if not isinstance(text, str):
        return text
    return base64.b64decode(text[len(_BASE64) :], validate=True) if text.startswith(_BASE64) else text.encode()


_CONTENTS = ("files", "tests", "solution_files")
_MEMBERS = {"services": "service", "steps": "step"}
_INNER = {
    "build": ("files",),
    "service": ("build",),
    "tests_environment": ("build",),
    "step": (*_CONTENTS, "tests_environment"),
}


def _decode_bytes(name: str, value: object) -> object:
    """Return the value of the field ``name`` with file contents as bytes."""
    if name in _MEMBERS and isinstance(value, list):
        return [_decode_bytes(_MEMBERS[name], each) for each in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, object]", value)
    if name in _CONTENTS:
        return {path: _bytes(text) for path, text in fields.items()}
    return fields | {inner: _decode_bytes(inner, fields[inner]) for inner in _INNER.get(name, ()) if inner in fields}


def to_metadata_text(value: object) -> str:
    """Return a format's own value as :attr:`Task.metadata` stores it: text unchanged, everything else as JSON."""
    if isinstance(value, str) and _is_text(value):
        return value
    return json.dumps(_keyed(value), ensure_ascii=False, default=str, sort_keys=True)


def _keyed(value: object) -> object:
    """Return ``value`` with text keys: YAML allows numbers and dates there too."""
    if isinstance(value, list):
        return [_keyed(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {str(key): _keyed(each) for key, each in cast("dict[object, object]", value).items()}
    return value


def from_metadata_text(text: str) -> object:
    """Return the value from which :func:`to_metadata_text` made the text."""
    return text if _is_text(text) else json.loads(text)


def _is_text(text: str) -> bool:
    """Return whether the text is not a JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


def to_metadata(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    return {f"{prefix}{key}": to_metadata_text(value) for key, value in values.items()}


def from_metadata(metadata: Mapping[str, str], prefix: str = "") -> dict[str, object]:
    """Return the values whose keys begin with ``prefix``, without it."""
    return {
        key.removeprefix(prefix): from_metadata_text(text) for key, text in metadata.items() if key.startswith(prefix)
    }
