"""If these fail, a grade or a run fails because a busy daemon is slow to remove a container, or a container is left."""

from __future__ import annotations

import aiodocker
import pytest

from sandbox.docker import engine as engine_module
from sandbox.docker import retry
from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import DockerEngineError

GONE, BUSY = aiodocker.DockerError(404, "no such container"), aiodocker.DockerError(409, "removal is in progress")


class FakeContainer:
    """Answers each removal with the next of these, and repeats the last one."""

    def __init__(self, *answers: aiodocker.DockerError | None) -> None:
        self.left = list(answers)
        self.asked = 0

    async def delete(self, *, force: bool, v: bool) -> None:
        self.asked += 1
        answer = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if answer is not None:
            raise answer


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.0)


async def removed(container: FakeContainer, monkeypatch: pytest.MonkeyPatch) -> FakeContainer:
    monkeypatch.setattr(DockerEngine, "_container", lambda *_: container)
    await DockerEngine("unix:///nowhere").remove("c" * 64)
    return container


async def test_it_is_asked_until_the_container_is_gone(monkeypatch: pytest.MonkeyPatch):
    assert (await removed(FakeContainer(None, GONE), monkeypatch)).asked == 2
    assert (await removed(FakeContainer(*[BUSY] * 40, GONE), monkeypatch)).asked == 41


async def test_what_the_daemon_cannot_do_is_an_error_and_so_is_a_removal_that_never_ends(monkeypatch):
    with pytest.raises(DockerEngineError, match="permission"):
        await removed(FakeContainer(aiodocker.DockerError(403, "permission denied")), monkeypatch)
    monkeypatch.setattr(engine_module, "_REMOVAL_S", 0.0)
    with pytest.raises(DockerEngineError, match="in progress"):
        await removed(FakeContainer(BUSY), monkeypatch)
