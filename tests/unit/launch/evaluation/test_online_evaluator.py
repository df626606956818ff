"""If these fail, an evaluation beside training is of other weights than it says, holds training up, is lost in a crash,
or is not told of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from actors.scheduler.evaluation.plan import EvaluationPlan, OnlineEvaluationPlan
from launch.checkpoints.store import CheckpointStore
from launch.evaluation.held_out.evaluation_store import (
    BEFORE,
    attempts_file,
    finish_evaluation,
    list_run_evaluations,
    load_pending_evaluations,
    read_evaluation_results,
    read_reusable_evaluation,
    results_on_lineage,
    spec_of_weights,
    store_pending_evaluation,
    write_run_evaluation,
)
from launch.evaluation.held_out.online_evaluator import NoOnlineEvaluation, OnlineEvaluator
from launch.evaluation.held_out.schedule import EvaluationSchedule
from launch.evaluation.results.evaluation_folder import EvaluationSpec
from launch.settings.checkpoint import RetentionSettings
from protocol.errors import InfraError, UserError
from protocol.evaluation import AttemptFile, AttemptRecord
from protocol.events import EventLog
from protocol.run_directory.run_tail import read_events
from protocol.weights import NO_VERSION, Lineage, WeightManifest, WeightVersion
from tests.support.actors.local_actors import LocalRemote
from tests.support.runs.attempts import attempt_for_request, make_attempt

SPEC = EvaluationSpec(solver="run")
PLAN = EvaluationPlan("", ("a", "b"), attempts=2, greedy=1, seed=3)
SOON_S = 30.0
EVERY, LAST = 4, 100


class EvaluationScheduler:
    """Finishes evaluations at once, or when it may."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.let.set()
        self.plans: list[OnlineEvaluationPlan] = []
        self.requested = asyncio.Event()
        self.fails: Exception | None = None

    async def run_online_evaluation(self, plan: OnlineEvaluationPlan) -> Sequence[AttemptRecord]:
        self.plans.append(plan)
        self.requested.set()
        await self.let.wait()
        if self.fails is not None:
            raise self.fails
        return [attempt_for_request(request, plan.version) for request in plan.evaluation.make_requests("run")]


class NotingCheckpointStore(CheckpointStore):
    expected: int | None = None
    """Step whose checkpoint is kept until its score is known."""

    def expect_score(self, step: int | None) -> None:
        self.expected = step
        super().expect_score(step)


class Around:
    """A run directory, evaluations in it, and fakes around them."""

    def __init__(self, run_dir: Path, *, own_engine: bool = True) -> None:
        self.run_dir, self.scheduler = run_dir, EvaluationScheduler()
        self.weights: list[bytes] = []
        """The weights on which each evaluation's engine was started."""
        self.newest: WeightManifest | None = None
        self.no_place = ""
        self.servable, self.may_leave = asyncio.Event(), asyncio.Event()
        """Its engine can be started, and has ended."""
        self.servable.set()
        self.may_leave.set()
        self.checkpoints = NotingCheckpointStore(run_dir, RetentionSettings(keep=1, keep_best=True))
        self.evaluator = OnlineEvaluator(
            run_dir=run_dir,
            schedule=EvaluationSchedule(EVERY, LAST),
            plan=PLAN,
            spec=SPEC,
            held_out_families=(),
            scheduler=LocalRemote(self.scheduler),
            evaluation_actors=self.examining,
            wait_servable=self.served,
            newest_weights=lambda: self.newest,
            require_capacity=self.require_place,
            checkpoints=self.checkpoints,
            events=EventLog(run_dir, "driver-1", "node-0"),
            own_engine=own_engine,
        )

    def require_place(self) -> None:
        if self.no_place:
            raise UserError(self.no_place)

    async def served(self, manifest: WeightManifest) -> None:
        await self.servable.wait()

    @asynccontextmanager
    async def examining(self, manifest: WeightManifest) -> AsyncGenerator[None]:
        self.weights.append((Path(manifest.path) / "model.safetensors").read_bytes())
        try:
            yield
        finally:
            await asyncio.shield(self.may_leave.wait())

    def publish(self, step: int, version: int | None = None) -> WeightManifest:
        """Written, as the learner does."""
        version = step if version is None else version
        folder = self.run_dir / "weights" / f"v{version}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"weights of %d" % version)
        self.newest = WeightManifest(WeightVersion(version), step, NO_VERSION, str(folder), "00", 1, 1)
        return self.newest

    async def published(self, step: int, version: int | None = None) -> WeightManifest:
        manifest = self.publish(step, version)
        await self.evaluator.on_published(manifest)
        return manifest

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
            task = group.create_task(self.evaluator.run())
            try:
                yield
            finally:
                task.cancel()

    def evaluation_events(self) -> list[tuple[str, int]]:
        """(kind, step) of each event."""
        found = [event for event in read_events(self.run_dir) if str(event["kind"]).startswith("evaluation.")]
        return [(str(event["kind"])[11:], int(str(event.get("step", -1)))) for event in found]


def line_of(*entries: tuple[int, int, int]) -> Lineage:
    lineage = Lineage()
    for version, step, parent in entries:
        lineage.add(WeightVersion(version), step, WeightVersion(parent))
    return lineage


async def test_an_evaluation_uses_the_weights_that_were_due_even_if_training_deletes_them(tmp_path: Path) -> None:
    """Training goes on, and removes versions that it no longer needs."""
    around = Around(tmp_path)
    around.servable.clear()
    async with around.running():
        manifest = await around.published(4)
        (Path(manifest.path) / "model.safetensors").unlink()
        for step in (5, 6):
            await around.published(step)
        around.servable.set()
        await around.evaluator.wait_idle()
    assert around.weights == [b"weights of 4"]
    assert [(plan.evaluation.name, plan.version) for plan in around.scheduler.plans] == [("step-000004", 4)]
    assert around.evaluation_events() == [("started", 4), ("finished", 4)]
    (found,) = read_evaluation_results(tmp_path)
    assert (found.step, found.version, len(found.attempts)) == (4, 4, 6)
    assert load_pending_evaluations(tmp_path) == []
    assert not (tmp_path / "evaluations" / "v4" / "weights").exists(), "its weights stay for ever"
    assert around.checkpoints.scores() == {4: 1.0}


async def test_publishing_weights_does_not_wait_for_an_evaluation(tmp_path: Path) -> None:
    around = Around(tmp_path)
    around.scheduler.let.clear()
    async with around.running():
        for step in range(1, 5):
            await around.published(step)
        await around.scheduler.requested.wait()
        for step in range(5, 10):
            await around.published(step)
        around.scheduler.let.set()
        await around.evaluator.wait_idle()
        await around.published(12)
        await around.evaluator.wait_idle()
    assert around.evaluation_events() == [
        ("started", 4),
        ("skipped", 8),
        ("finished", 4),
        ("started", 12),
        ("finished", 12),
    ]


async def test_the_score_of_an_evaluation_is_handed_to_the_metrics_once(tmp_path: Path) -> None:
    around = Around(tmp_path)
    async with around.running():
        await around.published(4)
        await around.evaluator.wait_idle()
    found = around.evaluator.take_score()
    assert found is not None
    assert (found.step, found.score.pass_at_1) == (4, 1.0)
    assert around.evaluator.take_score() is None


async def test_an_evaluation_that_infrastructure_fails_does_not_end_the_run(tmp_path: Path) -> None:
    around = Around(tmp_path)
    around.scheduler.fails = InfraError("no\nsandbox")
    async with around.running():
        await around.published(4)
        await around.evaluator.wait_idle()
        around.scheduler.fails = None
        await around.published(8)
        await around.evaluator.wait_idle()
    assert around.evaluation_events() == [("started", 4), ("failed", 4), ("started", 8), ("finished", 8)]
    (why,) = [event["why"] for event in read_events(tmp_path) if event["kind"] == "evaluation.failed"]
    assert why == "no sandbox"
    assert around.checkpoints.scores() == {8: 1.0}
    assert load_pending_evaluations(tmp_path) == []


async def test_an_evaluation_without_an_attempt_has_no_score(tmp_path: Path) -> None:
    around = Around(tmp_path)
    around.evaluator.plan = replace(PLAN, tasks=())
    async with around.running():
        await around.published(4)
        await around.evaluator.wait_idle()
    assert around.evaluation_events() == [("started", 4), ("failed", 4)]
    assert around.checkpoints.scores() == {}


async def test_an_evaluation_is_reported_as_failed_if_its_weights_cannot_be_stored(tmp_path: Path) -> None:
    around = Around(tmp_path)
    (tmp_path / "evaluations").write_text("no folder")
    async with around.running():
        await around.published(4)
        await around.evaluator.wait_idle()
    assert around.evaluation_events() == [("failed", 4)]


async def test_an_interrupted_evaluation_continues_after_its_finished_attempts(tmp_path: Path) -> None:
    around = Around(tmp_path)
    around.scheduler.let.clear()
    async with around.running():
        await around.published(4)
        await around.scheduler.requested.wait()
    request, *_ = PLAN.make_requests("run")
    AttemptFile(attempts_file(tmp_path, WeightVersion(4))).append(attempt_for_request(request, 4))

    again = Around(tmp_path)
    await again.evaluator.resume(line_of((4, 4, -1), (5, 5, 4), (77, 5, 5)), WeightVersion(77))
    await again.published(5, 77)
    async with again.running():
        await again.evaluator.wait_idle()
    assert again.weights == [b"weights of 4"]
    assert again.scheduler.plans[0].attempts_path == around.scheduler.plans[0].attempts_path
    assert again.evaluation_events()[-1] == ("finished", 4)

    third = Around(tmp_path)
    await third.evaluator.resume(line_of((4, 4, -1), (5, 5, 4), (77, 5, 5)), WeightVersion(77))
    await third.evaluator.wait_idle()
    assert third.scheduler.plans == []


async def test_an_evaluation_of_rolled_back_weights_is_aborted_at_resume_and_repeated_later(tmp_path: Path) -> None:
    around = Around(tmp_path)
    around.scheduler.let.clear()
    async with around.running():
        await around.published(4)
        await around.scheduler.requested.wait()

    again = Around(tmp_path)
    lineage = line_of((2, 2, -1), (3, 3, 2), (4, 4, 3), (77, 2, 2))
    await again.evaluator.resume(lineage, WeightVersion(77))
    assert again.evaluation_events()[-1] == ("aborted", 4)
    async with again.running():
        await again.published(4, 79)
        await again.evaluator.wait_idle()
    assert again.weights == [b"weights of 79"]


async def test_a_step_that_a_run_resumes_from_is_evaluated_exactly_once(tmp_path: Path) -> None:
    lineage = line_of((4, 4, -1), (77, 4, 4))
    first = Around(tmp_path)
    await first.evaluator.resume(lineage, WeightVersion(77))
    async with first.running():
        await first.published(4, 77)
        await first.evaluator.wait_idle()
    assert len(first.scheduler.plans) == 1
    lineage.add(WeightVersion(99), 4, WeightVersion(77))
    second = Around(tmp_path)
    await second.evaluator.resume(lineage, WeightVersion(99))
    async with second.running():
        await second.published(4, 99)
        await second.evaluator.wait_idle()
    assert second.scheduler.plans == []


async def test_a_missing_score_of_a_finished_evaluation_is_restored_at_resume(tmp_path: Path) -> None:
    first = Around(tmp_path)
    async with first.running():
        await first.published(4)
        await first.evaluator.wait_idle()
    (tmp_path / "checkpoints" / "scores.json").unlink()
    second = Around(tmp_path)
    await second.evaluator.resume(line_of((4, 4, -1), (77, 4, 4)), WeightVersion(77))
    assert second.checkpoints.scores() == {4: 1.0}


@pytest.mark.parametrize("begun", [True, False])
async def test_an_evaluation_is_repeated_if_the_death_of_the_learner_rolls_back_its_weights(
    tmp_path: Path, *, begun: bool
) -> None:
    around = Around(tmp_path)
    around.scheduler.let.clear()
    if not begun:
        await around.published(4)
        await around.evaluator.on_rollback(2)
        around.scheduler.let.set()
    async with around.running():
        if begun:
            await around.published(4)
            await around.scheduler.requested.wait()
            await around.evaluator.on_rollback(2)
            around.scheduler.let.set()
        await around.evaluator.wait_idle()
        assert around.evaluation_events()[-1] == ("aborted", 4)
        await around.published(4, 9)
        await around.evaluator.wait_idle()
    assert around.weights[-1] == b"weights of 9"
    assert around.checkpoints.scores() == {4: 1.0}
    assert [evaluation.version for evaluation in read_evaluation_results(tmp_path)] == [9]


async def test_deaths_while_an_evaluation_is_ending_leave_only_the_last_one_due(tmp_path: Path) -> None:
    """An engine takes its time to end."""
    around = Around(tmp_path)
    around.scheduler.let.clear()
    around.may_leave.clear()
    async with around.running():
        await around.published(4)
        await around.scheduler.requested.wait()
        for version in (9, 10, 11):
            await around.evaluator.on_rollback(2)
            await around.published(4, version)
        await around.evaluator.on_rollback(3)
        with pytest.raises(TimeoutError):  # the first has not ended
            async with asyncio.timeout(0.01):
                await around.evaluator.wait_idle()
        await around.published(4, 12)
        around.may_leave.set()
        around.scheduler.let.set()
        await around.evaluator.wait_idle()
    assert around.weights == [b"weights of 4", b"weights of 12"]
    assert [evaluation.version for evaluation in read_evaluation_results(tmp_path)] == [12]
    assert around.evaluation_events().count(("aborted", 4)) == 4


async def test_a_rollback_to_the_evaluated_step_does_not_touch_the_evaluation(tmp_path: Path) -> None:
    around = Around(tmp_path)
    around.scheduler.let.clear()
    async with around.running():
        await around.published(4)
        await around.scheduler.requested.wait()
        await around.evaluator.on_rollback(4)
        await around.published(4, 9)
        around.scheduler.let.set()
        await around.evaluator.wait_idle()
    assert around.weights == [b"weights of 4"]
    assert around.evaluation_events() == [("started", 4), ("finished", 4)]


async def test_on_a_shared_device_an_evaluation_restarts_if_its_weights_get_another_version(
    tmp_path: Path,
) -> None:
    around = Around(tmp_path, own_engine=False)
    around.scheduler.let.clear()
    async with around.running():
        await around.published(4)
        await around.scheduler.requested.wait()
        await around.evaluator.on_rollback(4)
        around.scheduler.let.set()
        await around.published(4, 9)
        await around.evaluator.wait_idle()
    assert around.weights == [b"weights of 4", b"weights of 9"]
    assert [evaluation.version for evaluation in read_evaluation_results(tmp_path)] == [9]


async def test_a_requested_evaluation_uses_the_newest_weights_or_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    around = Around(tmp_path)
    async with around.running():
        around.publish(5)
        assert "step 5 are evaluated during training" in await around.evaluator.request_evaluation("it looks good")
        await around.evaluator.wait_idle()
        assert around.evaluation_events() == [("requested", 5), ("started", 5), ("finished", 5)]
        assert [event["reason"] for event in read_events(tmp_path) if event["kind"] == "evaluation.requested"] == [
            "it looks good"
        ]
        with pytest.raises(UserError, match="were evaluated already"):
            await around.evaluator.request_evaluation("")
        around.scheduler.let.clear()
        await around.published(8)
        around.publish(9)
        with pytest.raises(UserError, match="step 8 is still running"):
            await around.evaluator.request_evaluation("")
        around.scheduler.let.set()
        await around.evaluator.wait_idle()
        await around.evaluator.request_evaluation("")
        await around.evaluator.wait_idle()
    assert around.evaluation_events()[3:] == [
        ("started", 8),
        ("finished", 8),
        ("requested", 9),
        ("started", 9),
        ("finished", 9),
    ]


async def test_a_requested_evaluation_that_cannot_start_is_refused_and_leaves_none_running(tmp_path: Path) -> None:
    around = Around(tmp_path)
    with pytest.raises(UserError, match="the learner has the device"):
        await around.evaluator.request_evaluation("")
    around.publish(5)
    around.no_place = "no sandbox is left"
    with pytest.raises(UserError, match="no sandbox is left"):
        await around.evaluator.request_evaluation("")
    around.no_place = ""
    (tmp_path / "evaluations").write_text("no folder")
    with pytest.raises(UserError, match="could not be stored"):
        await around.evaluator.request_evaluation("")
    await around.evaluator.wait_idle()
    assert around.evaluation_events() == [("requested", 5), ("failed", 5)]


async def test_a_run_without_held_out_tasks_refuses_a_requested_evaluation() -> None:
    with pytest.raises(UserError, match="tasks_per_family = 0 holds none out"):
        await NoOnlineEvaluation().request_evaluation("")


async def test_a_checkpoint_is_kept_while_its_step_is_evaluated(tmp_path: Path) -> None:
    around = Around(tmp_path)
    around.scheduler.let.clear()
    async with around.running():
        await around.published(4)
        assert around.checkpoints.expected == 4
        around.scheduler.let.set()
        await around.evaluator.wait_idle()
        assert around.checkpoints.expected is None


def test_only_results_of_ancestors_count(tmp_path: Path) -> None:
    around = Around(tmp_path)
    for step, version in ((4, 4), (8, 8), (4, 20)):
        kept = store_pending_evaluation(tmp_path, SPEC, around.publish(step, version))
        finish_evaluation(tmp_path, kept.version, [])
    lineage = line_of((3, 3, -1), (4, 4, 3), (8, 8, 4), (20, 4, 3), (21, 5, 20))
    assert [result.version for result in read_evaluation_results(tmp_path)] == [4, 8, 20]
    assert [result.version for result in results_on_lineage(tmp_path, lineage, WeightVersion(21))] == [20]
    assert [result.version for result in results_on_lineage(tmp_path, lineage, WeightVersion(8))] == [4, 8]
    assert {name: folder.name for name, folder in list_run_evaluations(tmp_path).items()} == {
        "step-000004": "v20", "step-000008": "v8"
    }  # fmt: skip


def test_half_stored_evaluations_left_by_a_crash_are_removed(tmp_path: Path) -> None:
    around, folder = Around(tmp_path), tmp_path / "evaluations"
    kept = store_pending_evaluation(tmp_path, SPEC, around.publish(4))
    (folder / ".v8.partial").mkdir()
    assert load_pending_evaluations(tmp_path) == [kept]
    assert list(read_evaluation_results(tmp_path)) == []
    finish_evaluation(tmp_path, kept.version, [])
    (folder / "v4" / "weights").mkdir()
    assert load_pending_evaluations(tmp_path) == []
    assert sorted(path.name for path in (folder / "v4").iterdir()) == ["attempts.jsonl", "evaluation.json"]
    (folder / "v9").mkdir()
    (folder / "v9" / "weights.json").write_text("{torn")
    assert load_pending_evaluations(tmp_path) == [], "a damaged one keeps a run from going on"
    assert [path.name for path in folder.iterdir()] == ["v4"]


def test_an_evaluation_before_training_is_reused_only_for_the_same_weights(tmp_path: Path) -> None:
    """Code that changed between two runs, say, gives the second one another warm start."""
    weights = WeightManifest(WeightVersion(1), 0, NO_VERSION, "", "aa", 0, 0)
    attempts = [make_attempt("a"), make_attempt("b", passed=False)]
    write_run_evaluation(tmp_path, spec_of_weights(SPEC, BEFORE, weights), attempts)
    assert read_reusable_evaluation(tmp_path, "aa") == attempts
    assert read_reusable_evaluation(tmp_path, "bb") is None
    assert read_reusable_evaluation(tmp_path / "nowhere", "aa") is None
