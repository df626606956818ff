"""Under which name an engine has an image.  Pure."""

from __future__ import annotations

import re

from sandbox.tasks.task import ImageBuild, Task, TaskService

_WORD = "[A-Za-z0-9]+(?:[._-]+[A-Za-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:{_WORD}(?::[0-9]{{1,5}})?/)?(?:{_WORD}/)*{_WORD}"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[a-z0-9]+:[0-9a-fA-F]{32,128})?"
)
_MOST_CHARACTERS = 511
_BUILT = "longshore/build:"


def is_reference(name: str) -> bool:
    """Whether it can name an image: nothing else may come into the path of a call to an engine."""
    return len(name) <= _MOST_CHARACTERS and _REFERENCE.fullmatch(name) is not None


def built_image_name(build: ImageBuild) -> str:
    """The tag under which a build is known: equal contexts have equal names."""
    return f"{_BUILT}{build.digest[:32]}"


def is_built_name(name: str) -> bool:
    """Whether :func:`image_name` gave it, in whatever process."""
    return name.startswith(_BUILT)


def with_tag(name: str) -> str:
    """The name with its tag written out: an engine asked to pull a bare name would fetch every tag of it."""
    return name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"


def image_for(task: Task | TaskService) -> str:
    """Of the image that a task or service is to run in; empty where it names none."""
    if task.build is not None:
        return built_image_name(task.build)
    return with_tag(task.image) if task.image else ""
