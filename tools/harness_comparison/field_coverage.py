"""Finds the keys of Harbor's ``task.toml`` for which the comparison has no case.  Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import cast

from tools.harness_comparison.cases import ComparisonCase

LIST_FIELDS = """
import json
from typing import get_args
from harbor.models.task.config import BaseModel, TaskConfig

def models(kind):
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for each in get_args(kind):
        yield from models(each)

def fields(model, path):
    for name, field in model.model_fields.items():
        yield path + name
        for each in models(field.annotation):
            yield from fields(each, f"{path}{name}.")

print(json.dumps(sorted(set(fields(TaskConfig, "")))))
"""
"""Program for Harbor's own Python that prints the keys of its ``TaskConfig``, with a dot between table and key."""

_FILTER = "Harbor on Docker filters networks only with a kernel that not every machine has"
_HARDWARE = "the machine has none: tests/unit/sandbox/tasks/test_harbor_keys.py says that it is named"
_AGENTS = "no oracle uses it: tests/unit/sandbox/tasks/test_harbor_keys.py says that it is named"
NOT_COMPARED: Mapping[str, str] = {
    "*network_mode": _FILTER,
    "*allowed_hosts": _FILTER,
    "*allow_internet": _FILTER,
    "environment.gpu*": _HARDWARE,
    "environment.tpu*": _HARDWARE,
    "environment.mcp_servers*": _AGENTS,
    "environment.skills_dir": _AGENTS,
    "verifier.environment.?*": "the same table as [environment]: the cases have what longshore does with it",
    "steps.verifier.environment.?*": "the same table as [environment]",
    "steps.verifier.collect.?*": "the same table as [[verifier.collect]]",
    "steps.healthcheck.?*": "the same table as [environment.healthcheck]",
    "steps.artifacts.?*": "the same table as an entry of artifacts",
}
"""Why a key, or those that a pattern names, have no case."""


def find_uncovered(fields: Iterable[str], cases: Iterable[ComparisonCase]) -> list[str]:
    """Return the keys that no case sets and for which no reason is given."""
    covered = {path for case in cases for path in _keys(tomllib.loads(f"{case.settings}\n"), "")}
    return [
        each for each in fields if each not in covered and not any(fnmatchcase(each, glob) for glob in NOT_COMPARED)
    ]


def _keys(table: Mapping[str, object], path: str) -> Iterator[str]:
    for name, value in table.items():
        yield f"{path}{name}"
        for inner in cast("list[object]", value) if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                yield from _keys(cast("dict[str, object]", inner), f"{path}{name}.")
