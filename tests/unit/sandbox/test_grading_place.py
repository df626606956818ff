"""A shell of the agent's sees the tests arrive in a container that was made for them when this fails."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.engine import ContainerSpec
from sandbox.grading import place
from sandbox.tasks.task import GradingLevel, Task

ARTIFACTS = ("/app",)


class Bench:
    """A container: the agent's, or one beside it."""

    def __init__(self, container: str, spec: ContainerSpec) -> None:
        self.container, self.spec, self.alive = container, spec, True
        self.engine = self

    async def close(self) -> None:
        self.alive = False

    async def remove(self, container: str) -> None:
        assert container == self.container

    async def setup(self, *_: object) -> None: ...

    async def write_files(self, *_: object, **__: object) -> None: ...


class Steps:
    """What was done, in order: containers that were copied, started and cleared."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def leave_alone(self, session: Bench) -> None:
        self.done.append(f"clear {session.container}")

    @asynccontextmanager
    async def committed(self, engine: object, container: str, *, pause: bool) -> AsyncGenerator[str]:
        assert not pause
        self.done.append(f"copy {container}")
        yield "copied"

    @asynccontextmanager
    async def paused(self, engine: object, container: str) -> AsyncGenerator[None]:
        yield

    async def start(self, engine: object, spec: ContainerSpec, workdir: str, limits: object) -> Bench:
        self.done.append(f"start {spec.image}")
        return Bench(spec.image, spec)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps()
    for name in ("leave_alone", "committed", "paused"):
        monkeypatch.setattr(place, name, getattr(made, name))
    monkeypatch.setattr(place.SandboxSession, "start", made.start)

    async def nothing(*_: object) -> list[Any]:
        return []

    monkeypatch.setattr(place, "_take", nothing)
    return made


@pytest.mark.parametrize(
    ("level", "artifacts", "expected"),
    [
        (GradingLevel.SAME, (), ["clear agent", "tests"]),
        (GradingLevel.COMMIT, (), ["copy agent", "clear agent", "start copied", "clear copied", "tests"]),
        (GradingLevel.ARTIFACTS, ARTIFACTS, ["clear agent", "start clean", "tests"]),
        (GradingLevel.SIBLING, ARTIFACTS, ["start clean", "tests"]),
        (GradingLevel.SIBLING, (), ["copy agent", "start copied", "clear copied", "tests"]),
    ],
)
async def test_nothing_of_the_agents_runs_where_the_tests_come_in(steps: Steps, level, artifacts, expected):
    agents: Any = Bench("agent", ContainerSpec("clean", Path("/kit"), {}))
    task = Task("t", "", grading=level, artifacts=artifacts)
    async with place.place(agents, task, 1.0) as bench:
        steps.done.append("tests")
        assert bench.alive
    assert steps.done == expected
    assert bench.alive is (level is GradingLevel.SAME)
