"""If these fail, an evaluation waits for an image although others are there, fills the disk, or never ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from rich.console import Console

from launch.evaluation.standalone.attempt_images import AttemptImages
from protocol.evaluation import AttemptId
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import ImageError
from sandbox.images.image_names import image_for
from sandbox.tasks.task import Task

if TYPE_CHECKING:
    from sandbox.images.store import ImageStore

TASKS = {name: Task(name, "", image=f"registry/{name}:1") for name in ("slow", "there", "broken")} | {
    "plain": Task("plain", "")
}


class FakeEvaluationStore:
    """It has the image of one task, cannot make that of another, and makes the third when it is told to."""

    def __init__(self, error: Exception) -> None:
        self.settings = SimpleNamespace(concurrency=2)
        self.may_make = asyncio.Event()
        self.reserved: list[str] = []
        self._error = error

    async def sizes(self) -> dict[str, int]:
        return {image_for(TASKS["there"]): 1}

    @asynccontextmanager
    async def keep(self, task: Task) -> AsyncGenerator[None]:
        self.reserved.append(task.id)
        yield
        self.reserved.remove(task.id)

    @asynccontextmanager
    async def reserve(self, task: Task, report: object) -> AsyncGenerator[str]:
        if task.id == "broken":
            raise self._error
        await self.may_make.wait()
        async with self.keep(task):
            yield "image"

    async def exceeds_quota(self) -> bool:
        return False


async def take_all(images: AttemptImages, store: FakeEvaluationStore) -> list[str]:
    found: list[str] = []
    while (attempt := await images.take()) is not None:
        found.append(f"{attempt.task}{attempt.number}")
        if len(found) == 4:
            store.may_make.set()
    return found


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ImageError("step 2/3: RUN make"), "failed: broken, step 2/3: RUN make"),
        (DockerEngineError("it is gone"), "missing images are made when an attempt needs them: it is gone"),
    ],
)
async def test_attempts_begin_as_their_images_are_there(
    capsys: pytest.CaptureFixture[str], error: Exception, line: str
) -> None:
    store = FakeEvaluationStore(error)
    attempts = [AttemptId(task, number) for task in ("slow", "there", "broken", "plain") for number in range(2)]
    images = AttemptImages(attempts, TASKS, cast("ImageStore", store), Console(stderr=True, width=200))
    async with images.making():
        found = await take_all(images, store)
    assert {*found} == {f"{attempt.task}{attempt.number}" for attempt in attempts}
    if isinstance(error, ImageError):
        assert found[:4] == ["there0", "there1", "plain0", "plain1"]
    assert line in capsys.readouterr().err


async def test_an_image_may_be_evicted_once_its_last_attempt_has_ended() -> None:
    store = FakeEvaluationStore(ImageError("step 2/3: RUN make"))
    store.may_make.set()
    attempts = [AttemptId(task, number) for task in TASKS for number in range(2)]
    images = AttemptImages(attempts, TASKS, cast("ImageStore", store), Console(quiet=True))
    left: dict[AttemptId, list[str]] = {}
    async with images.making():
        while (attempt := await images.take()) is not None:
            await images.finish(attempt)
            left[attempt] = [*store.reserved]
        assert not store.reserved, "at the evaluation's end nothing is left to release"
    assert "there" in left[AttemptId("there", 0)]
    assert "there" not in left[AttemptId("there", 1)]
