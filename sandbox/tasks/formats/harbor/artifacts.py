"""Reads and writes the artifacts of a Harbor task.  Pure.

Tests in a container of their own always get what the agent published in ``/logs/artifacts``, named or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sandbox.tasks.formats.harbor.schema import HarborArtifact
from sandbox.tasks.task import PUBLISHED_FOLDER


class ReadArtifacts(NamedTuple):
    """Artifacts as a task has them."""

    paths: tuple[str, ...]
    excludes: dict[str, tuple[str, ...]]


def read_artifacts(given: Iterable[HarborArtifact], *, separate: bool) -> ReadArtifacts:
    """Return absolute paths, and patterns; a path's first entry counts.  ``separate``: the tests have their own
    container."""
    absolute = [each for each in given if each.source.startswith("/")]
    by_path = {plain_path(each.source): tuple(each.exclude) for each in reversed(absolute)}
    paths = [*reversed(by_path)]
    if separate and PUBLISHED_FOLDER not in by_path:
        paths.insert(0, PUBLISHED_FOLDER)
    return ReadArtifacts(tuple(paths), {path: patterns for path, patterns in by_path.items() if patterns})


def write_artifacts(paths: Sequence[str], excludes: Mapping[str, Sequence[str]]) -> list[object]:
    """Return the entries of ``artifacts``: a table where something is excluded."""
    return [{"source": path, "exclude": list(excludes[path])} if path in excludes else path for path in paths]


def plain_path(path: str) -> str:
    """Return an absolute path without what changes nothing: ``//``, ``/./`` and a ``/`` at its end."""
    return "/" + "/".join(part for part in path.split("/") if part not in {"", "."})
