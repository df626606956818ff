"""A shell of the agent's sees the tests arrive in a container that was made for them when this fails."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from sandbox.engine import ContainerSpec, EngineError
from sandbox.errors import SandboxLost, SandboxStartError
from sandbox.grading import place
from sandbox.grading.artifacts import Unfit
from sandbox.tasks.task import GradingLevel, Task

ARTIFACTS = ("/app",)


class Bench:
    """A container: the agent's, or one beside it."""

    def __init__(self, container: str, spec: ContainerSpec) -> None:
        self.container, self.spec, self.alive = container, spec, True
        self.excess_bytes = 0
        self.looked_after: list[str] = []
        self.engine = self

    def beside(self, bench: Bench) -> AbstractContextManager[object]:
        self.looked_after.append(bench.container)
        return nullcontext()

    async def close(self) -> None:
        self.alive = False

    async def remove(self, container: str) -> None:
        assert container == self.container

    async def inspect(self, container: str, *, size: bool = False) -> dict[str, int]:
        return {"SizeRw": self.spec.limits.disk_bytes + self.excess_bytes}

    async def setup(self, *_: object) -> None: ...

    async def write_files(self, *_: object, **__: object) -> None: ...


class Steps:
    """What was done, in order: containers that were copied, started and cleared."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def leave_alone(self, session: Bench) -> None:
        self.done.append(f"clear {session.container}")

    async def mend_devices(self, session: Bench) -> None:
        self.done.append(f"mend {session.container}")

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
    for name in ("leave_alone", "mend_devices", "committed", "paused"):
        monkeypatch.setattr(place, name, getattr(made, name))
    monkeypatch.setattr(place.SandboxSession, "start", made.start)

    async def nothing(*_: object, **__: object) -> list[Any]:
        return []

    for name in ("_take", "real_paths", "clear"):
        monkeypatch.setattr(place, name, nothing)
    return made


@pytest.mark.parametrize(
    ("level", "artifacts", "expected"),
    [
        (GradingLevel.SAME, (), ["clear agent", "mend agent", "tests"]),
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
    assert agents.looked_after == [each.removeprefix("start ") for each in steps.done if each.startswith("start ")]


@pytest.mark.parametrize("level", [GradingLevel.COMMIT, GradingLevel.SIBLING])
async def test_files_that_are_longer_than_the_disk_limit_are_not_copied(steps: Steps, level: GradingLevel):
    agents: Any = Bench("agent", ContainerSpec("clean", Path("/kit"), {}))
    agents.excess_bytes = 1
    with pytest.raises(Unfit, match="disk limit is 2048 MiB"):
        async with place.place(agents, Task("t", "", grading=level), 1.0):
            pass
    assert not any(each.startswith(("copy", "start")) for each in steps.done)


class Work:
    """Fails as often as it is told to."""

    def __init__(self, *failures: Exception) -> None:
        self.failures, self.times = list(failures), 0

    async def do(self) -> str:
        self.times += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


async def works() -> bool:
    return True


async def fails() -> bool:
    return False


@pytest.mark.parametrize("error", [EngineError("no"), SandboxStartError("no")])
async def test_only_what_fails_twice_around_a_success_of_the_daemons_is_the_agents_doing(error: Exception):
    """Else a busy host costs an honest agent its reward, or a wrecked box a replacement."""
    assert await place.carried(Work().do, fails) == "done"
    assert await place.carried(Work(error).do, works) == "done"
    with pytest.raises(Unfit, match="no"):
        await place.carried(Work(error, error).do, works)
    once = Work(error, error)
    with pytest.raises(type(error)):
        await place.carried(once.do, fails)
    assert once.times == 1


async def test_a_container_that_is_lost_is_never_the_agents_doing():
    with pytest.raises(SandboxLost):
        await place.carried(Work(SandboxLost("gone")).do, works)
