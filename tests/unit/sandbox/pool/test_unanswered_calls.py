"""If these fail, containers that a daemon created too late live forever, or one in use is removed."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.docker.engine import ContainerInfo, DockerEngine
from sandbox.docker.files import committed_images
from sandbox.docker.files.committed_images import CommittedImage
from sandbox.docker.labels import POOL_PROCESS_LABEL
from sandbox.docker.retry import DockerEngineError
from sandbox.pool import unanswered_calls
from sandbox.pool.unanswered_calls import LOOK_WINDOW_S, UnansweredCallCleanup

LABELS = {POOL_PROCESS_LABEL: "mine"}


class SilentDockerEngine(DockerEngine):
    """Has containers with their states, and images."""

    def __init__(self) -> None:
        super().__init__("unix:///nowhere")
        self.states: dict[str, str] = {}
        self.images: set[str] = set()
        self.calls = 0

    async def containers(self, labels: Any = None) -> tuple[ContainerInfo, ...]:
        assert labels == LABELS
        self.calls += 1
        return tuple(ContainerInfo(each, LABELS, state) for each, state in self.states.items())

    async def remove(self, container: str) -> None:
        del self.states[container]


class CleanedMachine:
    def __init__(self) -> None:
        self.engine, self.now = SilentDockerEngine(), 1000.0
        self.cleanup = UnansweredCallCleanup(self.engine, LABELS, 120.0, lambda: self.now)

    async def after(self, seconds: float) -> int:
        self.now += seconds
        return await self.cleanup.remove_orphans()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> CleanedMachine:
    made = CleanedMachine()

    async def copies(engine: SilentDockerEngine, labels: object) -> tuple[CommittedImage, ...]:
        return tuple(CommittedImage(image, LABELS) for image in engine.images)

    async def remove(engine: SilentDockerEngine, image: str) -> None:
        engine.images.discard(image)

    monkeypatch.setattr(committed_images, "list_committed_images", copies)
    monkeypatch.setattr(committed_images, "remove_committed_image", remove)
    return made


async def test_only_containers_and_images_unclaimed_for_long_are_removed(machine: CleanedMachine):
    engine = machine.engine
    engine.unanswered_at = machine.now
    engine.states = {"late": "created", "soon": "created", "live": "running"}
    engine.images, engine.committed_images = {"forgotten", "used"}, {"used"}
    assert await machine.after(0.0) == 0
    engine.states["soon"] = "running"
    assert await machine.after(119.0) == 0
    assert await machine.after(2.0) == 2
    assert (set(engine.states), engine.images) == ({"soon", "live"}, {"used"})


async def test_orphans_are_looked_for_only_after_an_unanswered_call(machine: CleanedMachine):
    assert await machine.after(0.0) == machine.engine.calls == 0
    machine.engine.unanswered_at = machine.now
    await machine.after(1.0)
    assert machine.engine.calls == 1
    await machine.after(LOOK_WINDOW_S + 1)
    assert machine.engine.calls == 1


async def test_a_create_call_without_an_answer_is_remembered_and_a_refused_one_is_not():
    engine = DockerEngine("unix:///nowhere")
    for status, unknown in ((404, False), (0, True)):
        with pytest.raises(DockerEngineError), engine.creating():
            raise DockerEngineError("no", status)
        assert (engine.unanswered_at is not None) is unknown


async def test_a_failed_search_is_repeated(machine: CleanedMachine, monkeypatch: pytest.MonkeyPatch):
    looks: list[int] = []

    async def look() -> int:
        looks.append(0)
        if len(looks) < 3:
            raise DockerEngineError("not now")
        raise KeyError

    monkeypatch.setattr(unanswered_calls, "LOOK_INTERVAL_S", 0.0)
    monkeypatch.setattr(machine.cleanup, "remove_orphans", look)
    with pytest.raises(KeyError):
        await machine.cleanup.run()
    assert len(looks) == 3
