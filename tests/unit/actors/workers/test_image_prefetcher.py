"""If these fail, a task is excluded for one failed pull, or because a worker that has its image never said so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors.scheduler.task_images import TaskImages
from actors.workers import image_prefetcher
from actors.workers.image_prefetcher import ImagePrefetcher
from protocol.events import EventLog
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import ImageError
from sandbox.images.image_names import image_for
from sandbox.tasks.task import Task
from tests.support.actors.local_actors import LocalRemote

TASK = Task("t", "", image="registry/t:1")


class FakeImageStore:
    """A store in which each image fails ``failures`` times."""

    def __init__(self, failures: int = 0, existing: Collection[str] = (), *, engine_lost: bool = False) -> None:
        self.settings = SimpleNamespace(failure_memory_s=0.1, concurrency=1)
        self.tries = 0
        self._failures, self._existing, self._engine_lost = failures, existing, engine_lost

    async def sizes(self) -> dict[str, int]:
        if self._engine_lost:
            raise DockerEngineError("no engine")
        return dict.fromkeys(self._existing, 1)

    @asynccontextmanager
    async def keep(self, task: Task) -> AsyncGenerator[None]:
        yield

    @asynccontextmanager
    async def reserve(self, task: Task, report: object) -> AsyncGenerator[str]:
        self.tries += 1
        if self.tries <= self._failures:
            raise ImageError("the registry says 503")
        yield "image"

    async def exceeds_quota(self) -> bool:
        return False


class FakeImageScheduler:
    """Keeps each report with the number of tries before it."""

    def __init__(self, store: FakeImageStore) -> None:
        self.reports: list[tuple[int, TaskImages]] = []
        self.last = asyncio.Event()
        """Set once nothing is missing."""
        self.ready = asyncio.Event()
        """Set once nothing has failed either."""
        self._store = store

    async def report_images(self, worker: str, incarnation: str, images: TaskImages) -> Sequence[str]:
        self.reports.append((self._store.tries, images))
        if not images.missing:
            self.last.set()
            if not images.failed:
                self.ready.set()
        return [TASK.id]


async def reports_of(
    store: FakeImageStore, run_dir: Path, *, until_ready: bool = False
) -> list[tuple[int, TaskImages]]:
    scheduler = FakeImageScheduler(store)
    prefetcher = ImagePrefetcher(
        LocalRemote(scheduler), "w", "1", {TASK.id: TASK}, store, EventLog(run_dir, "w", "node-0")
    )
    async with prefetcher.prefetching():
        assert scheduler.reports, "no request is taken before the first report"
        await (scheduler.ready if until_ready else scheduler.last).wait()
    return scheduler.reports


@pytest.mark.parametrize(("failures", "failed"), [(1, {}), (2, {"t": "the registry says 503"})], ids=["once", "twice"])
async def test_a_task_fails_only_if_its_image_fails_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, failed: dict[str, str]
) -> None:
    """It is missing until then, however often the worker reports between the two tries."""
    monkeypatch.setattr(image_prefetcher, "REPORT_S", 0.01)
    reports = await reports_of(FakeImageStore(failures), tmp_path)
    *earlier, (tries, last) = reports
    assert (tries, dict(last.failed)) == (2, failed)
    assert {images.missing for _, images in earlier} == {frozenset({"t"})}
    assert len([tries for tries, _ in earlier if tries == 1]) > 1


async def test_a_failed_image_is_tried_until_it_is_made_and_failed_meanwhile(tmp_path: Path) -> None:
    reports = await reports_of(FakeImageStore(2), tmp_path, until_ready=True)
    assert (2, TaskImages(failed={"t": "the registry says 503"})) in reports
    assert reports[-1] == (3, TaskImages())
    assert all(not images.missing for tries, images in reports if tries > 1)


async def test_a_worker_that_has_every_image_says_so(tmp_path: Path) -> None:
    store = FakeImageStore(existing=[image_for(TASK)])
    assert (await reports_of(store, tmp_path))[0] == (0, TaskImages())


async def test_a_worker_whose_engine_fails_says_that_episodes_make_the_images(tmp_path: Path) -> None:
    assert await reports_of(FakeImageStore(engine_lost=True), tmp_path) == [(0, TaskImages())]
