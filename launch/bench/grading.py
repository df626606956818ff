"""Measures what a grade costs in the agent's own container, in a copy of it, and in clean ones.

The same answer is graded in each place by a stock script that runs pytest.  The places alternate: first one grade at a
time, for its latency; then whole episodes (sandbox, answer, grade, end), two for each core at once, for what a place
costs the machine in all.  ``warm`` is a clean container of the warm pool, with the artifacts; no grading level uses it.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import NamedTuple

from protocol.cli.arguments import AtLeastOne, CommandArguments, JsonFlag
from protocol.cli.output import error_console
from protocol.events import JsonValue
from sandbox.grading.containers.agent_processes import kill_agent_processes
from sandbox.grading.containers.carried_files import collect_artifacts, unpack_files
from sandbox.grading.containers.scratch import scratch_folder
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grader import grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.pool.settings import PoolSettings
from sandbox.session.sandbox_session import SandboxSession
from sandbox.stress.concurrency import for_each
from sandbox.stress.report import percentile
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel

_CORES = os.cpu_count() or 1
_ANSWER, _ANSWER_S = "echo 42 > answer.txt", 60.0
_SCRIPT = "#!/bin/bash\nuvx -w pytest==8.4.1 -w pytest-json-ctrf==0.3.5 pytest --ctrf /logs/verifier/ctrf.json /tests\n"
_TESTS = b"""
from pathlib import Path

def test_answer():
    assert Path("/app/answer.txt").read_text() == "42\\n"
"""
_TASK = Task(
    "answer",
    "Write 42 to answer.txt.",
    workdir="/app",
    run_tests=_SCRIPT,
    tests={"test_answer.py": _TESTS},
    expected_tests=("test_answer",),
    reports=("/logs/verifier/ctrf.json",),
    artifacts=("/app",),
)
_LEVELS = (GradingLevel.SAME, GradingLevel.LIVE, GradingLevel.COMMIT, GradingLevel.ARTIFACTS)


class _Place(NamedTuple):
    task: Task
    grade: Callable[[SandboxSession, Task], Awaitable[GradeResult]]


@dataclass(slots=True)
class GradingMeasurement:
    """The measurements of one place."""

    latencies_ms: list[float] = field(default_factory=list[float])
    rates: list[float] = field(default_factory=list[float])
    """Episodes per second and core in each round."""
    wrong: int = 0
    """Right answers that did not pass."""

    def as_json(self) -> dict[str, JsonValue]:
        p50, p95 = (percentile(self.latencies_ms, percent) or 0.0 for percent in (50, 95))
        return {
            "p50_ms": round(p50, 1),
            "p95_ms": round(p95, 1),
            "episodes_per_core_s": round(median(self.rates), 3),
            "wrong": self.wrong,
        }


@dataclass(frozen=True, slots=True)
class GradingBenchmarkReport:
    places: dict[str, GradingMeasurement]

    @property
    def passed(self) -> bool:
        """Every grade was right; there is no goal for the cost."""
        return not any(each.wrong for each in self.places.values())

    def as_json(self) -> dict[str, JsonValue]:
        return {name: measured.as_json() for name, measured in self.places.items()}


class GradingArguments(CommandArguments):
    """Measure the cost of a grade in the agent's container, in a copy of it, and in clean ones."""

    grades: AtLeastOne = 40
    """Grades in each place, one at a time."""
    rounds: AtLeastOne = 3
    """Rounds of whole episodes; the median is reported."""
    episodes: AtLeastOne = 24
    """Episodes of each place in a round."""
    as_json: JsonFlag = False


async def measure_grading(given: GradingArguments) -> GradingBenchmarkReport:
    """Run the benchmark.  Raises UserError or InfraError if the machine has no sandboxes."""
    name, at_once = f"bench-{uuid.uuid4().hex[:8]}", 2 * _CORES
    async with SandboxPool(PoolSettings(name, name, 4 * at_once, warm_per_kind=at_once)) as pool:
        return await _measure_places(pool, given, at_once, error_console().print)


async def _measure_places(
    pool: SandboxPool, given: GradingArguments, at_once: int, say: Callable[[str], None]
) -> GradingBenchmarkReport:
    places = {level.value: _Place(replace(_TASK, grading=level), grade_sandbox) for level in _LEVELS}
    places["warm"] = _Place(_TASK, partial(_grade_in_warm_container, pool))
    report = GradingBenchmarkReport({name: GradingMeasurement() for name in places})
    for _ in range(given.grades):
        for name, place in places.items():
            await pool.prewarm(place.task, 2)
            report.places[name].latencies_ms.append(await _play(pool, place, report.places[name]))
    for number in range(given.rounds):
        for name, place in places.items():
            rate = await _episode_rate(pool, place, given.episodes, at_once, report.places[name])
            report.places[name].rates.append(rate)
            say(f"round {number + 1}: {name:<9} {rate:.2f} episodes per second and core")
    return report


async def _episode_rate(
    pool: SandboxPool, place: _Place, episodes: int, at_once: int, measured: GradingMeasurement
) -> float:
    """Return how many episodes end per second and core; the warm pool is full before and after."""

    async def play(_: int) -> None:
        await _play(pool, place, measured)

    await pool.prewarm(place.task, at_once)
    begun = time.perf_counter()
    await for_each(range(episodes), play, at_once)
    await pool.prewarm(place.task, at_once)
    return episodes / (time.perf_counter() - begun) / _CORES


async def _play(pool: SandboxPool, place: _Place, measured: GradingMeasurement) -> float:
    """Play an episode and return the milliseconds of its grade."""
    async with pool.acquire(place.task) as session:
        await session.run(_ANSWER, _ANSWER_S)
        begun = time.perf_counter()
        result = await place.grade(session, place.task)
        measured.wrong += not result.all_passed
        return (time.perf_counter() - begun) * 1000


async def _grade_in_warm_container(pool: SandboxPool, session: SandboxSession, task: Task) -> GradeResult:
    """Grade the artifacts in another sandbox of the pool."""

    async def works() -> bool:
        return False  # nothing here harms a transfer: its error is an error

    await kill_agent_processes(session)
    async with pool.acquire(task) as clean:
        with scratch_folder() as folder:
            found = await collect_artifacts(session, {path: path for path in task.artifacts}, folder, live=False)
            await unpack_files(clean, task.artifacts, found, works)
        return await grade_sandbox(clean, task)
