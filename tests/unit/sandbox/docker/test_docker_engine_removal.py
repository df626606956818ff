"""If these fail, a grade or a run fails because a busy daemon is slow to remove a container, or a container is left."""

from __future__ import annotations

from types import SimpleNamespace

import aiodocker
import pytest

from sandbox.docker import engine as engine_module
from sandbox.docker import retry
from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import DockerEngineError

GONE, BUSY = aiodocker.DockerError(404, "no such container"), aiodocker.DockerError(409, "removal is in progress")


class FakeRemovedContainer:
    """Answers each removal with the next of these, and repeats the last one."""

    def __init__(self, *answers: aiodocker.DockerError | None) -> None:
        self.answers = list(answers)
        self.delete_calls = 0

    async def delete(self, *, force: bool, v: bool) -> None:
        self.delete_calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.0)


async def removed(container: FakeRemovedContainer, monkeypatch: pytest.MonkeyPatch) -> FakeRemovedContainer:
    daemon = SimpleNamespace(containers=SimpleNamespace(container=lambda _: container))
    monkeypatch.setattr(DockerEngine, "docker", daemon)
    await DockerEngine("unix:///nowhere").remove("c" * 64)
    return container


async def test_a_removal_is_repeated_until_the_container_is_gone(monkeypatch: pytest.MonkeyPatch):
    assert (await removed(FakeRemovedContainer(None, GONE), monkeypatch)).delete_calls == 2
    assert (await removed(FakeRemovedContainer(*[BUSY] * 40, GONE), monkeypatch)).delete_calls == 41


async def test_a_refused_or_endless_removal_is_an_error(monkeypatch):
    with pytest.raises(DockerEngineError, match="permission"):
        await removed(FakeRemovedContainer(aiodocker.DockerError(403, "permission denied")), monkeypatch)
    monkeypatch.setattr(engine_module, "REMOVAL_S", 0.0)
    with pytest.raises(DockerEngineError, match="in progress"):
        await removed(FakeRemovedContainer(BUSY), monkeypatch)
