"""Names of images on an engine.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild, TaskService, TestsEnvironment

TaskWithImage: TypeAlias = Task | TaskService | TestsEnvironment
"""A task, its services and its tests can each have an image of their own."""


class NeededImage(NamedTuple):
    """An image that a task needs."""

    needed_by: str
    """``TASK``, ``TASK/SERVICE`` or ``TASK/tests``, with a number if its steps have several."""
    source: TaskWithImage


_WORD = "[A-Za-z0-9]+(?:[._-]+[A-Za-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:{_WORD}(?::[0-9]{{1,5}})?/)?(?:{_WORD}/)*{_WORD}"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[a-z0-9]+:[0-9a-fA-F]{32,128})?"
)
_MOST_CHARACTERS = 511
_BUILT = "longshore/build:"


def is_reference(name: str) -> bool:
    """Return whether ``name`` is a valid image reference: nothing else may become part of an API path."""
    return len(name) <= _MOST_CHARACTERS and _REFERENCE.fullmatch(name) is not None


def built_image_name(build: ImageBuild) -> str:
    """Return the name of a build; equal contexts have equal names."""
    return f"{_BUILT}{build.digest[:32]}"


def is_built_name(name: str) -> bool:
    """Return whether :func:`built_image_name` gave the name, in whatever process."""
    return name.startswith(_BUILT)


def with_tag(name: str) -> str:
    """Return the name with its tag: pulling a bare name would fetch every tag."""
    return name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"


def image_for(task: TaskWithImage) -> str:
    """Return the name of a task's or service's image; empty if it names none."""
    if task.build is not None:
        return built_image_name(task.build)
    return with_tag(task.image) if task.image else ""


def images_of(task: Task) -> Iterator[NeededImage]:
    """Yield the images that a task needs, without the base image of tasks that name none."""
    needed = [NeededImage(task.id, task)]
    needed += [NeededImage(f"{task.id}/{service.name}", service) for service in task.services]
    of_tests = [each for each in task.tests_environments if each.has_image]
    needed += [NeededImage(f"{task.id}/tests{n or ''}", each) for n, each in enumerate(of_tests)]
    yield from (each for each in needed if image_for(each.source))
