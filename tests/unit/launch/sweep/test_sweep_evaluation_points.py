"""If these fail, a sweep of evaluations starts a server a point, or one model that fails takes the others along."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from actors.engines.settings import EngineSpec
from launch.bench.tiny_recipes import build_tiny_model
from launch.config.loader import Toml
from launch.evaluation.results.evaluation_folder import EvaluationFolder
from launch.evaluation.solvers import models as model_solvers
from launch.evaluation.standalone.evaluation import StandaloneEvaluation
from launch.sweep import evaluation_points
from launch.sweep.axes import SweepPoint, parse_axis
from launch.sweep.definition import SweepFile, SweepKind, build_sweep
from launch.sweep.evaluation_points import EvaluationPoints, configure_evaluations
from launch.sweep.point_results import PointState
from launch.sweep.sweep_folder import open_sweep_folder
from protocol.errors import InfraError, UserError
from protocol.evaluation import AttemptError, AttemptId, AttemptRecord, AttemptStage, AttemptVerdict
from protocol.trajectory import EpisodeStatus
from sandbox.tasks.formats.generated.generator import training_tasks
from sandbox.tasks.formats.registry import write_tasks


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    for name in "ab":
        build_tiny_model(folder / name)
    return folder / "a", folder / "b"


class FakeServers:
    """Of models: who was served by which; the model in ``broken`` has none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[str] = []
        self.served: list[tuple[str, str]] = []
        """Point's folder, and the server."""
        self.broken = ""
        self.fails: set[str] = set()
        monkeypatch.setattr(model_solvers, "serve_model", self.serving)
        monkeypatch.setattr(evaluation_points, "run_evaluation", self.work)

    @asynccontextmanager
    async def serving(self, settings: EngineSpec) -> AsyncGenerator[str]:
        name = Path(settings.model_path).name
        if name == self.broken:
            raise InfraError("the server does not come up")
        self.started.append(name)
        yield name

    async def work(
        self,
        evaluation: StandaloneEvaluation,
        to_run: Sequence[AttemptId],
        folder: EvaluationFolder,
        _: Console,
        engine: str,
    ) -> None:
        self.served.append((folder.path.name, engine))
        if folder.path.name in self.fails:
            raise UserError("nobody is there")
        for attempt in to_run:
            lost = AttemptError(AttemptStage.RESET, "SandboxLost", "gone") if attempt.number else None
            verdict = None if lost else AttemptVerdict(True, 1.0, 1.0, EpisodeStatus.COMPLETED)
            folder.add_record(AttemptRecord(attempt.task, attempt.number, "f", 1.0, verdict, lost))


class Heard:
    def point_started(self, point: SweepPoint, log: Path) -> None: ...
    def point_ended(self, point: SweepPoint) -> None: ...


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> FakeServers:
    return FakeServers(monkeypatch)


async def swept(folder: Path, *axes: str, attempts: int = 1) -> EvaluationPoints:
    if not (folder / "tasks").exists():
        write_tasks(training_tasks(3, 2), "terminal_bench", folder / "tasks")
    common = {"tasks": str(folder / "tasks"), "attempts": attempts}
    sweep = build_sweep("s", SweepFile(kind=SweepKind.EVALUATE), common, [parse_axis(axis) for axis in axes])
    found = EvaluationPoints(sweep, configure_evaluations(sweep, folder / "out"), folder / "out")
    found.check_existing()
    waiting = [p for p in sweep.points if found.read_result(p).state in {PointState.PLANNED, PointState.BROKEN_OFF}]
    with open_sweep_folder(folder / "out", sweep) as place:
        await found.run_points(waiting, 1, place, Heard())
    return found


def states(found: EvaluationPoints) -> dict[str, str]:
    return {point.name: found.read_result(point).state.value for point in found.sweep.points}


async def test_the_points_of_a_model_share_its_server(
    tmp_path: Path, models: tuple[Path, Path], servers: FakeServers
) -> None:
    axes = ("temperature=0.5,1.0", f"model={models[0]},{models[1]}", "agent.max_turns=2,3")
    found = await swept(tmp_path, *axes)
    assert servers.started == ["a", "b"]
    assert len(servers.served) == 8
    assert all(f"-{server}-" in point for point, server in servers.served)
    assert set(states(found).values()) == {"ended"}
    figures = found.read_result(found.sweep.points[0]).figures
    assert (figures["pass_at_1"], figures["graded"], figures["errors"]) == (1.0, 2, 0)
    await swept(tmp_path, *axes)
    assert servers.started == ["a", "b"], "what has ended was served again"


async def test_what_is_the_engines_own_is_another_server(
    tmp_path: Path, models: tuple[Path, Path], servers: FakeServers
) -> None:
    await swept(tmp_path, "agent.context_tokens=512,768", "greedy=true,false", f"model={models[0]}")
    assert servers.started == ["a", "a"]


async def test_who_needs_no_server_gets_none(tmp_path: Path, servers: FakeServers) -> None:
    found = await swept(tmp_path, "oracle=true", "seed=0,1")
    assert servers.started == []
    assert set(states(found).values()) == {"ended"}
    assert found.sweep.seed_axis == "seed"


async def test_a_model_that_is_not_served_costs_its_own_points(
    tmp_path: Path, models: tuple[Path, Path], servers: FakeServers
) -> None:
    servers.broken = "a"
    found = await swept(tmp_path, f"model={models[0]},{models[1]}", "temperature=0.5,1.0")
    assert list(states(found).values()) == ["failed", "failed", "ended", "ended"]
    assert found.read_result(found.sweep.points[0]).why == "the server does not come up"
    servers.broken = ""
    found = await swept(tmp_path, f"model={models[0]},{models[1]}", "temperature=0.5,1.0")
    assert set(states(found).values()) == {"ended"}
    assert servers.started == ["b", "a"]


async def test_a_point_that_fails_costs_no_other(
    tmp_path: Path, models: tuple[Path, Path], servers: FakeServers
) -> None:
    servers.fails = {"out-a-temperature0.5"}
    found = await swept(tmp_path, f"model={models[0]}", "temperature=0.5,1.0")
    assert states(found) == {"a-temperature0.5": "failed", "a-temperature1.0": "ended"}


async def test_attempts_without_a_verdict_are_tried_again_when_asked(
    tmp_path: Path, models: tuple[Path, Path], servers: FakeServers
) -> None:
    found = await swept(tmp_path, f"model={models[0]}", attempts=2)
    (point,) = found.sweep.points
    assert found.read_result(point).why == "2 attempts have no verdict"
    assert "--set retry-errors=true" in found.retry_advice(point)


@pytest.mark.parametrize("ids", ["3-4,7", ["3-4", "7"]])
def test_every_point_takes_the_tasks_that_are_asked_for(tmp_path: Path, ids: Toml) -> None:
    """ART's held-out tasks are asked for by their numbers, of each model alike."""
    tasks = [replace(task, id=f"swe-{number}") for number, task in enumerate(training_tasks(3, 8))]
    write_tasks(tasks, "terminal_bench", tmp_path / "tasks")
    common: dict[str, Toml] = {"tasks": str(tmp_path / "tasks"), "noop": True, "task-ids": ids}
    sweep = build_sweep("s", SweepFile(kind=SweepKind.EVALUATE), common, [parse_axis("seed=0,1")])
    for evaluation in configure_evaluations(sweep, tmp_path).values():
        assert list(evaluation.selection.tasks) == ["swe-3", "swe-4", "swe-7"]


def test_a_sweep_that_does_not_say_whose_is_refused(tmp_path: Path) -> None:
    sweep = build_sweep("s", SweepFile(kind=SweepKind.EVALUATE), {"tasks": "/t"}, [parse_axis("temperature=0.5,1.0")])
    with pytest.raises(UserError, match="--set model=PATH"):
        configure_evaluations(sweep, tmp_path)
