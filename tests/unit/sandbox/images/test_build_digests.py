"""If these fail, an event loop stands still while build contexts of gigabytes are read again and again."""

from __future__ import annotations

import dataclasses
from _collections_abc import dict_items

from sandbox.images.image_names import image_for
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild


class CountingFiles(dict[str, bytes]):
    """Files that count how often they are read."""

    reads = 0

    def items(self) -> dict_items[str, bytes]:
        self.reads += 1
        return super().items()


def test_a_context_is_read_once_however_often_its_image_is_named() -> None:
    files = CountingFiles({"Dockerfile": b"FROM a"})
    build = ImageBuild(files)
    assert {image_for(Task(name, "", build=build)) for name in "ab"} == {image_for(Task("c", "", build=build))}
    assert files.reads == 1
    other = dataclasses.replace(build, target="last")
    assert other.digest != build.digest
    assert dataclasses.replace(other, target="") == build
