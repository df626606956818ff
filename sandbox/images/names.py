"""Under which name an engine has an image.  Pure."""

from __future__ import annotations

from sandbox.tasks.task import ImageBuild, Service, Task


def image_name(build: ImageBuild) -> str:
    """The tag under which a build is known: equal contexts have equal names."""
    return f"longshore/build:{build.digest[:32]}"


def tagged(name: str) -> str:
    """The name with its tag written out: an engine asked to pull a bare name would fetch every tag of it."""
    return name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"


def wanted(task: Task | Service) -> str:
    """Of the image that a task or service is to run in; empty where it names none."""
    if task.build is not None:
        return image_name(task.build)
    return tagged(task.image) if task.image else ""
