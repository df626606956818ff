"""If these fail, a run ends because none of its held-out tasks can run, or has a score of no attempt."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from actors.scheduler.evaluation.plan import EvaluationPlan
from launch.checkpoints.store import CheckpointStore
from launch.evaluation.held_out.held_out_evaluations import HeldOutEvaluations
from launch.evaluation.held_out.online_evaluator import NoOnlineEvaluation
from launch.run.arguments import parse_cluster_arguments
from launch.run_records.run_context import RunContext
from launch.run_records.run_directory import RunDirectory
from launch.settings.checkpoint import RetentionSettings
from protocol.evaluation import AttemptRecord
from protocol.events import EventLog
from protocol.weights import NO_VERSION, Lineage, WeightManifest, WeightVersion
from tests.support.actors.local_actors import LocalRemote
from tests.support.runs.attempts import attempt_for_request


class FakeEvaluationScheduler:
    """Finishes every attempt at once; none of the tasks in ``faulty`` can run."""

    def __init__(self, faulty: Sequence[str]) -> None:
        self.faulty = faulty

    async def run_evaluation(self, plan: EvaluationPlan) -> list[AttemptRecord]:
        return [attempt_for_request(each) for each in plan.make_requests("run") if each.task not in self.faulty]


@pytest.mark.parametrize(("faulty", "found"), [(["a"], {"before": {"b"}}), (["a", "b"], {})])
async def test_a_run_continues_without_held_out_tasks_that_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faulty: list[str], found: dict[str, set[str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = parse_cluster_arguments(["demo"]).load_config()
    weights = WeightManifest(WeightVersion(0), 0, NO_VERSION, str(tmp_path), "00", 1, 1)
    with RunDirectory.create(Path("runs"), "demo", "a") as directory:
        events = EventLog(directory.path, "driver-1", "node-0")
        evaluations = HeldOutEvaluations(
            run=RunContext(config, directory, events, Console(file=io.StringIO())),
            held_out_ids=("a", "b"),
            scheduler=LocalRemote(FakeEvaluationScheduler(faulty)),
            weights=cast("Any", SimpleNamespace(step=0, version=WeightVersion(0), lineage=Lineage())),
            learner=cast("Any", None),
            weight_sync=cast("Any", SimpleNamespace(newest=weights)),
            checkpoints=CheckpointStore(directory.path, RetentionSettings(keep=1)),
            online=NoOnlineEvaluation(),
        )
        await evaluations.evaluate_before()
        results = await evaluations.finish()
    assert {name: {each.task for each in attempts} for name, attempts in results.attempts.items()} == found
