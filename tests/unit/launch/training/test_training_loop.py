"""If these fail, a trajectory is trained twice or never, or a dead learner costs the run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import orjson
import pytest

from actors.engines.messages import GenerateReply, GenerateRequest, WeightLoadReport
from actors.runtime.remote_errors import ActorDied
from actors.scheduler.rollout_scheduler import SchedulerStatistics
from launch.actor_group.learner_group import LearnerGroup
from launch.checkpoints.best_checkpoint import export_best_checkpoint
from launch.checkpoints.store import CheckpointStore
from launch.config import RunConfig
from launch.control.scheduler_state import SchedulerStateSender
from launch.control.step_hooks import StepHooks, StopReason
from launch.evaluation.held_out.online_evaluator import EvaluationHooks, NoOnlineEvaluation
from launch.evaluation.scores import OnlineEvaluationScore, PassRateEstimate
from launch.run.training_setup import build_training_loop
from launch.run_records.metrics_log import read_metrics
from launch.settings.checkpoint import RetentionSettings
from launch.training.learner_client import LearnerClient
from launch.training.logprob_parity import ParityMonitor
from launch.training.parity_checker import ParityChecker
from launch.training.parity_samples import ParitySampleSettings
from launch.training.state import TrainingState
from launch.weight_sync.colocation import ColocationManager
from launch.weight_sync.manager import WeightSyncManager
from learner.messages import CheckpointSaveError, StepReport
from protocol.errors import UserError
from protocol.events import EventLog, JsonValue
from protocol.files.digests import FileDigest, digest_files
from protocol.run_directory.run_tail import read_events
from protocol.run_directory.trained_log import TRAINED_FOLDER as TRAINED
from protocol.run_directory.trained_log import RewindEntry, parse_trained_line
from protocol.staleness import StaleTokenPolicy
from protocol.trajectory import DropReason, Float32Array, Int32Array, Uint8Array
from protocol.weights import Lineage, WeightManifest, WeightVersion
from tests.support.actors.local_actors import LocalRemote
from tests.support.fakes.fake_buffer import FakeBuffer
from tests.support.fakes.fake_parity_engine import LOGPROB, FakeParityEngine
from tests.support.fakes.fake_scheduler import FakeScheduler

PER_STEP = 2
SOON_S = 30.0
LOOKING = -1
"""In ``dies_at``: what kills is no step, but the look for parity."""


def with_values(config: RunConfig, values: Mapping[str, object]) -> RunConfig:
    for name, value in values.items():
        section, _, key = name.partition(".")
        config = config.model_copy(update={section: getattr(config, section).model_copy(update={key: value})})
    return config


CONFIG = with_values(
    RunConfig(),
    {
        "run.steps": 4,
        "rollout.groups_per_step": PER_STEP,
        "rollout.group_size": 2,
        "staleness.max_staleness": 1,
        "learner.publish_every": 1,
        "learner.nonfinite_limit": 2,
        "checkpoint.every_steps": 2,
    },
)


class WaitingScheduler(FakeScheduler):
    running_step: int | None = None
    budget_full = False
    open_groups = 0

    async def oldest_running_step(self, step: int, leased: Sequence[int]) -> int | None:
        assert len(leased) == PER_STEP
        return self.running_step

    async def statistics(self) -> SchedulerStatistics:
        return SchedulerStatistics(0, 0, self.open_groups, 0, self.budget_full)


@dataclass
class FakeLearner:
    """Its weights are the number of steps that made them."""

    name: str
    dies_at: list[int]
    """Steps that kill it, one each."""
    weights: int = 0
    stepped: list[tuple[int, WeightVersion]] = field(default_factory=list)
    stale: int = 0
    """So many batches, from now on, have no token to train."""
    stale_at: list[int] = field(default_factory=list)
    """Steps whose first batch has none."""
    nonfinite_at: list[int] = field(default_factory=list)
    """Steps of which that many batches have no finite update."""
    references: list[tuple[int, bool]] = field(default_factory=list)
    reference_folders: list[str] = field(default_factory=list)
    """Its weights when it was told of the reference, and whether it was to write it."""
    publishes: int = 1000
    """The call of ``begin_publish`` after so many kills it."""
    failing_saves: int = 0
    """So many saves, from now on, find no space."""
    disk: asyncio.Event = field(default_factory=asyncio.Event)
    """A checkpoint's copy is written once this is set."""
    calls: list[str] = field(default_factory=list)
    """Calls that need the device, and those that leave it."""
    looked: list[int] = field(default_factory=list)
    """Its weights, whenever it was asked for log-probabilities."""

    def __post_init__(self) -> None:
        self.disk.set()

    def offload_to_host(self) -> None:
        self.calls.append("sleep")

    def step(self, step: int, payload: Sequence[bytes], lineage: Lineage, version: WeightVersion) -> StepReport:
        self.calls.append("step")
        if self.dies_at and self.dies_at[0] == step:
            self.dies_at.pop(0)
            raise ActorDied(self.name, "killed")
        assert version in lineage.entries
        assert self.weights == step - 1, "a step was taken from other weights than those of the step before"
        names = tuple(blob.decode() for blob in payload)
        if self.stale or step in self.stale_at:
            self.stale = max(0, self.stale - 1)
            self.stale_at = [each for each in self.stale_at if each != step]
            return StepReport(step, (), dict.fromkeys(names, DropReason.ALL_STALE), (), {})
        if step in self.nonfinite_at:
            self.nonfinite_at.remove(step)
            return StepReport(step, (), dict.fromkeys(names, DropReason.NONFINITE), (), {"nonfinite_updates": 1.0})
        self.weights = step
        self.stepped.append((step, version))
        return StepReport(step, names, {}, (7, 3), {"trained_tokens": 10.0})

    def logprobs(self, sequences: Sequence[tuple[Int32Array, Uint8Array]]) -> list[Float32Array]:
        self.calls.append("logprobs")
        if self.dies_at and self.dies_at[0] == LOOKING:
            self.dies_at.pop(0)
            raise ActorDied(self.name, "killed")
        self.looked.append(self.weights)
        return [np.full(int(mask.sum()), LOGPROB, np.float32) for _, mask in sequences]

    def begin_publish(self) -> None:
        self.calls.append("publish")
        self.publishes -= 1
        if self.publishes < 0:
            raise ActorDied(self.name, "killed")
        self.publishing = self.weights

    async def end_publish(
        self, version: WeightVersion, step: int, parent: WeightVersion, folder: str
    ) -> WeightManifest:
        await self.disk.wait()
        assert self.publishing == step, "weights of another step than the version's"
        self.written(Path(folder))
        return WeightManifest(version, step, parent, folder, "00", 1, 1)

    def publish(self, version: WeightVersion, step: int, parent: WeightVersion, folder: str) -> None:
        self.calls.append("export")
        self.written(Path(folder))
        (Path(folder) / "weights").write_text(str(self.weights))

    def freeze_reference(self, folder: str, write: bool) -> None:
        self.references.append((self.weights, write))
        self.reference_folders.append(folder)
        if write:
            Path(folder).mkdir()

    def written(self, folder: Path) -> None:
        folder.mkdir(parents=True)

    def begin_save(self, folder: str) -> None:
        self.calls.append("save")
        self.saving = Path(folder), str(self.weights)

    async def end_save(self) -> dict[str, FileDigest]:
        await self.disk.wait()
        folder, weights = self.saving
        if self.failing_saves:
            self.failing_saves -= 1
            raise CheckpointSaveError(f"{folder}: no space")
        (folder / "weights").write_text(weights)
        return digest_files(folder, ["weights"])

    def load(self, folder: str) -> None:
        self.calls.append("load")
        self.weights = int((Path(folder) / "weights").read_text())


class NotedWeightSyncManager(WeightSyncManager):
    """Remembers what it was offered."""

    def __init__(self, scheduler_state: SchedulerStateSender, events: EventLog) -> None:
        super().__init__(
            engines=(),
            report_served=scheduler_state.set_served_step,
            events=events,
            update_timeout_s=30.0,
            max_updating_share=1.0,
            max_update_overhead=1.0,
        )
        self.offered: list[WeightManifest] = []

    async def set_newest(self, manifest: WeightManifest) -> None:
        self.offered.append(manifest)
        await super().set_newest(manifest)


class TrainingRun:
    """A training loop and the fakes around it."""

    def __init__(
        self,
        run_dir: Path,
        *,
        dies_at: Sequence[int] = (),
        actor: str = "run/1.1/learner-0",
        buffer: FakeBuffer | None = None,
    ) -> None:
        self.run_dir, self.dies_at, self.actor = run_dir, list(dies_at), actor
        self.buffer, self.scheduler = buffer or FakeBuffer(), WaitingScheduler()
        self.generations: list[FakeLearner] = []
        self.events, self.step_hooks = EventLog(run_dir, "driver", "node-0"), StepHooks()
        scheduler_state = SchedulerStateSender(LocalRemote(self.scheduler))
        self.weight_sync = NotedWeightSyncManager(scheduler_state, self.events)
        self.checkpoints = CheckpointStore(run_dir, RetentionSettings(keep=3))
        learner = LearnerClient(
            ranks=self._new_learners(),
            start_ranks=self.restart,
            colocation=ColocationManager(colocated=False, weight_sync=self.weight_sync, lease_s=60.0, timeout_s=60.0),
            online_evaluation=NoOnlineEvaluation(),
        )
        self.training = build_training_loop(
            TrainingState(CONFIG, run_dir, start_number=1),
            learner,
            self.weight_sync,
            ParityChecker(None, 0, ParityMonitor(1e-3, ""), learner, self.weight_sync, self.events),
            buffer=LocalRemote(self.buffer, "buffer"),
            scheduler=LocalRemote(self.scheduler, "scheduler"),
            scheduler_state=scheduler_state,
            checkpoints=self.checkpoints,
            online_evaluation=NoOnlineEvaluation(),
            step_hooks=self.step_hooks,
            sampled_tokens=self.engine_tokens,
            judge_tokens=self.judge_tokens,
            events=self.events,
        )

    def _new_learners(self) -> LearnerGroup:
        self.generations.append(FakeLearner(self.actor, self.dies_at))
        return LearnerGroup((LocalRemote(self.generations[-1], self.actor),), 60.0)

    async def restart(self) -> LearnerGroup:
        return self._new_learners()

    async def engine_tokens(self) -> int:
        """A hundred before training, and a hundred in each step."""
        return 100 * (1 + self.training.step)

    async def judge_tokens(self) -> int:
        """Ten before training, and ten in each step."""
        return 10 * (1 + self.training.step)

    def change(self, values: Mapping[str, object]) -> None:
        """Set ``section.key`` → value."""
        state = self.training.state
        state.config = with_values(state.config, values)

    def evaluate_with(self, evaluation: EvaluationHooks) -> None:
        training = self.training
        for part in (training.learner, training.writer, training.recorder, training.recovery):
            part.online_evaluation = evaluation

    async def go(self) -> None:
        """From the first weights to the end, with enough groups for every step."""
        await self.buffer.add_ready(4 * PER_STEP)
        await self.training.recovery.publish_initial_weights()
        async with asyncio.timeout(SOON_S):
            await self.training.run()

    @property
    def steps_kept(self) -> list[int]:
        """In the newest checkpoint's ledger."""
        return [line.step for line in self.checkpoints.list_checkpoints()[-1].ledger()]

    @property
    def saved(self) -> list[int]:
        return [checkpoint.manifest.step for checkpoint in self.checkpoints.list_checkpoints()]


async def test_a_batch_is_marked_before_the_next_is_leased(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    await run.go()
    assert run.buffer.calls == ["lease", "mark 1", "lease", "mark 2", "lease", "mark 3", "lease", "mark 4"]
    assert run.buffer.groups_of_step == {1: [0, 1], 2: [2, 3], 3: [4, 5], 4: [6, 7]}


async def test_each_step_starts_from_the_weights_published_last(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    await run.go()
    versions = [version for _, version in run.generations[0].stepped]
    assert versions == sorted(set(versions))
    newest = run.weight_sync.newest
    assert newest is not None
    assert (newest.step, newest.parent) == (4, versions[-1])
    staleness = [run.training.lineage.staleness(version, newest.version) for version in versions]
    assert staleness == [4, 3, 2, 1]


async def test_a_learners_death_takes_the_run_back_to_its_checkpoint(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path, dies_at=[4])
    await run.go()
    assert run.buffer.calls[-6:] == ["lease", "rewind 2", "lease", "mark 3", "lease", "mark 4"]
    assert run.buffer.groups_of_step == {1: [0, 1], 2: [2, 3], 3: [4, 5], 4: [6, 7]}
    assert [step for step, _ in run.generations[1].stepped] == [3, 4]
    used = [version for generation in run.generations for _, version in generation.stepped]
    assert len(set(used)) == len(used), "a version names two sets of weights"
    assert run.steps_kept == [1, 2, 3, 4]
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2, 3, 4]
    resumed = run.training.lineage.entries[used[3]]
    assert resumed.step == 2
    assert run.training.lineage.staleness(used[2], used[3]) == 0
    assert run.training.lineage.entries[used[2]].step == 2


async def test_a_learner_that_keeps_dying_at_one_step_ends_the_run_though_steps_before_it_succeed(
    tmp_path: Path,
) -> None:
    run = TrainingRun(tmp_path, dies_at=[4] * 10)
    with pytest.raises(ActorDied):
        await run.go()
    assert len(run.dies_at) == 6
    assert len(run.generations) == 4


async def test_engines_get_the_weights_of_the_checkpoint_after_a_rollback(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path, dies_at=[4])
    await run.go()
    offered = [(manifest.step, manifest.version) for manifest in run.weight_sync.offered]
    assert [step for step, _ in offered] == [1, 2, 3, 2, 3, 4]
    assert [version for _, version in offered] == sorted({version for _, version in offered})


async def test_weights_are_published_at_their_interval_and_at_the_end(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.change({"learner.publish_every": 2, "run.steps": 3})
    await run.go()
    assert [manifest.step for manifest in run.weight_sync.offered] == [2, 3]
    stepped = run.generations[0].stepped
    staleness = [run.training.lineage.staleness(stepped[0][1], version) for _, version in stepped]
    assert staleness == [0, 1, 2], "the steps in between do not count for the staleness of a token"
    assert run.weight_sync.newest is not None
    assert run.training.lineage.staleness(stepped[0][1], run.weight_sync.newest.version) == 3


async def test_a_batch_without_a_token_to_train_is_dropped_and_does_not_count_as_a_step(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.generations[0].stale = 2
    run.change({"run.steps": 2})
    await run.go()
    assert run.buffer.calls == [*(["lease", "mark 1"] * 3), "lease", "mark 2"]
    assert (run.training.step, run.buffer.passed_over) == (2, 2 * PER_STEP)
    assert [manifest.step for manifest in run.weight_sync.offered] == [1, 2]
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines] == [1, 2]
    assert all(line["engine_tokens"] == 10 * line["judge_tokens"] > 0 for line in lines), "each counts its own tokens"
    assert [(line["trained_trajectories"], line["staleness_histogram"]) for line in lines] == [
        (PER_STEP * 2, [7, 3])
    ] * 2
    assert run.steps_kept == [1, 2]
    assert [line["untrained_tokens_by_length"] for line in lines] == [{"all_stale": {"4": 40}}, {}], (
        "its tokens are counted"
    )


def told_of_steps(run_dir: Path) -> list[tuple[object, ...]]:
    """Return, for each progress line, its step and counts of trained and dropped, or how far a resume went back."""
    lines = map(parse_trained_line, (run_dir / TRAINED / "index.jsonl").read_bytes().splitlines())
    return [
        ("rewound", line.rewound_to)
        if isinstance(line, RewindEntry)
        else (line.step, *(sum(bool(each.reason) is gone for each in line.trajectories) for gone in (False, True)))
        for line in lines
        if line is not None
    ]


async def test_the_use_of_trajectories_in_each_step_is_recorded(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path, dies_at=[4])
    run.generations[0].stale_at = [2]
    await run.buffer.add_ready(PER_STEP)
    await run.go()
    step = 2 * PER_STEP
    assert told_of_steps(tmp_path) == [
        (1, step, 0), (None, 0, step), (2, step, 0), (3, step, 0), ("rewound", 2), (3, step, 0), (4, step, 0),
    ]  # fmt: skip


async def test_records_that_cannot_be_written_raise_one_alert_and_cost_no_step(tmp_path: Path) -> None:
    (tmp_path / TRAINED).write_text("in the way")
    run = TrainingRun(tmp_path)
    await run.go()
    assert run.training.step == 4
    alerts = [event for event in read_events(tmp_path) if event.get("name") == "trained_log"]
    assert len(alerts) == 1


async def test_the_learners_activity_says_when_it_waited_and_when_it_computed(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    await run.go()
    last = orjson.loads((tmp_path / "activity" / "learner.jsonl").read_bytes().splitlines()[-1])
    assert last["kind"] == "learner"
    assert {"waiting", "training", "publishing", "saving"} <= last["seconds"].keys()


async def test_a_restarted_learner_gets_the_reference_that_the_first_one_wrote(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path, dies_at=[4])
    run.change({"kl.coefficient": 0.1})
    await run.go()
    assert [learner.references for learner in run.generations] == [[(0, True)], [(2, False)]]


async def test_a_configured_reference_is_read_at_the_start_and_after_each_restart(tmp_path: Path) -> None:
    """And never written, if it is gone: the weights that a learner happens to have would take its place."""
    run = TrainingRun(tmp_path, dies_at=[4])
    reference = tmp_path / "sft"
    run.change({"kl.coefficient": 0.1, "kl.reference": reference})
    await run.go()
    assert [learner.references for learner in run.generations] == [[(0, False)], [(2, False)]]
    assert {folder for learner in run.generations for folder in learner.reference_folders} == {str(reference)}


def kept_batches(run_dir: Path) -> Counter[str]:
    """Folder → trajectories in it, each under its name."""
    files = list(run_dir.glob("nonfinite/*/*"))
    assert all(file.name == f"{file.read_text().replace('/', '-')}.trajectory" for file in files)
    return Counter(file.parent.name for file in files)


async def test_a_nonfinite_batch_is_stored_and_dropped_and_does_not_count_as_a_step(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.generations[0].nonfinite_at = [1, 2]
    run.change({"run.steps": 2})
    await run.go()
    assert run.buffer.calls == ["lease", "mark 1", "lease", "mark 1", "lease", "mark 2", "lease", "mark 2"]
    assert (run.training.step, run.buffer.passed_over) == (2, 2 * PER_STEP)
    assert kept_batches(tmp_path) == {"step-1": 2 * PER_STEP, "step-2": 2 * PER_STEP}, "each trajectory of the batch"
    events = [event for event in read_events(tmp_path) if event["kind"] == "learner.nonfinite"]
    assert [event["step"] for event in events] == [1, 2]


async def test_repeated_nonfinite_batches_end_the_run(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.generations[0].nonfinite_at = [2, 2]
    with pytest.raises(UserError, match=r"2 batches in a row.*learner\.nonfinite_limit.*nonfinite"):
        await run.go()
    assert run.training.step == 1
    assert kept_batches(tmp_path).keys() == {"step-2", "step-2-2"}
    assert run.buffer.passed_over == 2 * PER_STEP, "they are dropped all the same"


async def test_dropped_tokens_are_reported_once_even_if_a_death_rolls_back_their_line(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path, dies_at=[4])
    run.generations[0].stale_at = [3]
    await run.buffer.add_ready(PER_STEP)
    await run.go()
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert [line["untrained_tokens_by_length"] for line in lines] == [{}, {}, {"all_stale": {"4": 20}}, {}]
    raw = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert sum("all_stale" in line for line in raw) == 2, "the death took a line back that had told it"


async def test_a_new_driver_knows_the_versions_that_came_after_the_checkpoint(tmp_path: Path) -> None:
    first = TrainingRun(tmp_path)
    first.change({"run.steps": 3, "checkpoint.every_steps": 100})
    await first.go()
    (tmp_path / "checkpoints" / "step-000003").rename(tmp_path / "lost")
    sampled = first.training.version
    second = TrainingRun(tmp_path, buffer=first.buffer)
    second.training.state.start_number = 2
    checkpoint = second.checkpoints.list_checkpoints()[-1]
    assert checkpoint.manifest.step == 0
    with (tmp_path / "lineage.jsonl").open("ab") as torn:
        torn.write(b'{"version": 42949')
    manifest = await second.training.recovery.resume_from(checkpoint)
    assert second.training.lineage.staleness(sampled, manifest.version) == 3
    assert second.buffer.committed == [0, 3, 0], "who died between manifest and commit leaves it to the next"
    third = TrainingRun(tmp_path, buffer=first.buffer)
    third.training.state.start_number = 3
    await third.training.recovery.resume_from(checkpoint)
    assert manifest.version in third.training.lineage.entries, "the torn line has swallowed the next"


@pytest.mark.parametrize("forgotten", ["arrivals", "steps"])
async def test_a_journal_that_is_older_than_the_checkpoint_is_refused(tmp_path: Path, forgotten: str) -> None:
    """Otherwise trajectories that the checkpoint's weights have learned from would be trained again."""
    first = TrainingRun(tmp_path)
    await first.go()
    older = FakeBuffer()
    if forgotten == "steps":
        await older.add_ready(4 * PER_STEP)
        older.groups_of_step = {step: groups for step, groups in first.buffer.groups_of_step.items() if step < 4}
    second = TrainingRun(tmp_path, buffer=older)
    checkpoint = second.checkpoints.list_checkpoints()[-1]
    with pytest.raises(UserError, match=r"journal\.sqlite is older than the checkpoint of step 4"):
        await second.training.recovery.resume_from(checkpoint)
    assert older.committed == []


async def test_a_learner_that_dies_at_every_retry_of_a_step_ends_the_run(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path, dies_at=[3] * 10)
    with pytest.raises(ActorDied):
        await run.go()
    assert run.saved[-1] == 2
    assert len(run.generations) == 4


async def test_before_the_first_checkpoint_a_dead_learners_work_is_done_again(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.generations[0].publishes = 0
    await run.training.recovery.retry_with_new_learners(run.training.recovery.publish_initial_weights)
    assert run.saved == [0]
    assert len(run.generations) == 2
    assert run.generations[1].publishes == 999


async def test_a_learner_that_dies_at_every_retry_of_its_first_work_ends_the_run(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)

    async def deadly() -> None:
        raise ActorDied(run.actor, "killed")

    with pytest.raises(ActorDied):
        await run.training.recovery.retry_with_new_learners(deadly)
    assert len(run.generations) == 4


async def test_the_death_of_another_actor_is_not_taken_for_the_learners(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path, dies_at=[2], actor="buffer")
    with pytest.raises(ActorDied, match="buffer"):
        await run.go()
    assert len(run.generations) == 1


async def test_checkpoints_are_written_at_the_start_at_their_interval_and_at_the_end(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.change({"run.steps": 3})
    await run.go()
    assert run.saved == [0, 2, 3]
    assert run.buffer.committed == [0, 2, 3]
    ledger = run.checkpoints.list_checkpoints()[1].ledger()
    assert [line.trained for line in ledger] == [("0/0", "0/1", "1/0", "1/1"), ("2/0", "2/1", "3/0", "3/1")]
    assert run.steps_kept == [1, 2, 3]
    assert run.training.writer.checkpoint_manager.ledger == [], (
        "what a checkpoint has, the driver does not hold for the rest of the run"
    )


async def test_a_full_buffer_is_given_its_checkpoint_early(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.buffer.wants_checkpoint = True
    await run.go()
    assert run.buffer.committed == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("full", [False, True])
async def test_a_budget_full_of_trained_trajectories_does_not_starve_the_next_step(
    tmp_path: Path, *, full: bool
) -> None:
    run = TrainingRun(tmp_path)
    run.scheduler.budget_full = full
    run.change({"checkpoint.every_steps": 100})
    await run.buffer.add_ready(PER_STEP)
    await run.training.recovery.publish_initial_weights()
    async with asyncio.TaskGroup() as group:
        going = group.create_task(run.training.run())
        while run.training.step < 1 or not run.buffer.waiting:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
        assert run.saved == ([0, 1] if full else [0])
        await run.buffer.add_ready(3 * PER_STEP)
        await going


@pytest.mark.parametrize(
    ("stop", "steps"),
    [
        ({"after_trajectories": 1}, 0),
        ({"after_hours": 1e-12}, 0),
        ({"after_steps": 2}, 2),
        ({"after_tokens": 100}, 1),
        ({"after_trajectories": 10_000}, 4),
        ({"after_tokens": 10_000}, 4),
    ],
)
async def test_a_stop_condition_ends_training_between_steps_and_says_so(
    tmp_path: Path, stop: dict[str, float], steps: int
) -> None:
    run = TrainingRun(tmp_path)
    run.change({f"stop.{key}": value for key, value in stop.items()})
    await run.go()
    assert run.training.step == steps
    assert run.training.state.stop_reason is (StopReason.STEPS if steps == 4 else StopReason.BUDGET)
    ((name, value),) = stop.items()
    alerts = [event["text"] for event in read_events(tmp_path) if event["kind"] == "alert.raised"]
    why = f"training ends after step {steps} of 4: stop.{name} = {value:g}"
    assert alerts == ([] if steps == 4 else [why])


async def test_failed_exports_of_trajectories_are_reported_once(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.buffer.export_failures = 3
    await run.go()
    (alert,) = [event["text"] for event in read_events(tmp_path) if event["kind"] == "alert.raised"]
    assert str(alert).startswith("3 trajectories could not be exported")


async def test_a_stop_condition_ends_the_wait_for_a_batch_that_never_comes(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.change({"stop.after_trajectories": PER_STEP})
    await run.training.recovery.publish_initial_weights()
    async with asyncio.TaskGroup() as group:
        going = group.create_task(run.training.run())
        while not run.buffer.waiting:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
        await run.buffer.add_ready(1)
        await going
    assert run.training.step == 0


async def test_the_wait_policy_delays_a_step_that_would_strand_an_episode(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.change({"staleness.policy": StaleTokenPolicy.WAIT})
    run.scheduler.running_step = 0
    async with asyncio.TaskGroup() as group:
        going = group.create_task(run.go())
        while run.training.step < 1 or not run.buffer.waiting:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
        assert run.training.step == 1
        run.scheduler.running_step = None
        await run.buffer.notify_progress()
        await going
    assert run.training.step == 4


async def test_weights_stay_until_every_engine_has_a_later_version(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.change({"run.steps": 8})
    await run.buffer.add_ready(4 * PER_STEP)
    await run.go()
    folders = sorted(path.name for path in (tmp_path / "weights").iterdir())
    assert len(folders) == 9, "an engine that still serves the first version has lost its files"
    run.weight_sync.served = run.weight_sync.newest
    await run.training.writer.publish()
    assert len(list((tmp_path / "weights").iterdir())) == 4


async def test_a_run_that_is_stopped_keeps_its_last_step(tmp_path: Path) -> None:
    """Without this, its last weights, which were evaluated, are in no checkpoint, and a resume repeats steps."""
    run = TrainingRun(tmp_path)
    await run.buffer.add_ready(3 * PER_STEP)
    run.change({"stop.after_trajectories": 10_000, "learner.publish_every": 2})
    await run.training.recovery.publish_initial_weights()
    async with asyncio.TaskGroup() as group:
        going = group.create_task(run.training.run())
        while run.training.step < 3 or not run.buffer.waiting:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
        run.change({"stop.after_trajectories": 1})
        await run.buffer.notify_progress()
        await going
    assert run.saved == [0, 2, 3]
    assert [manifest.step for manifest in run.weight_sync.offered] == [2, 3]


async def test_a_learner_that_dies_after_the_last_step_is_restarted_and_the_run_completes(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.change({"run.steps": 3, "learner.publish_every": 2})
    run.generations[0].publishes = 2
    await run.go()
    assert len(run.generations) == 2
    assert run.saved == [0, 2, 3]
    assert [manifest.step for manifest in run.weight_sync.offered] == [2, 3]


async def test_half_written_weights_of_a_killed_learner_are_removed(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path, dies_at=[2])
    (tmp_path / "weights" / ".v7.building").mkdir(parents=True)
    await run.go()
    assert not (tmp_path / "weights" / ".v7.building").exists()


@asynccontextmanager
async def going(run: TrainingRun, *, until_step: int) -> AsyncGenerator[asyncio.Task[None]]:
    """The loop, on a disk that takes nothing yet, once it waits for a batch after this step."""
    await run.buffer.add_ready(until_step * PER_STEP)
    await run.training.recovery.publish_initial_weights()
    run.generations[0].disk.clear()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        task = group.create_task(run.training.run())
        while run.training.step < until_step or not run.buffer.waiting:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
        yield task


async def test_steps_go_on_while_a_checkpoint_is_written_and_do_not_show_in_it(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.change({"learner.publish_every": 100})
    async with going(run, until_step=3):
        assert (run.training.step, run.saved) == (3, [0])
        run.generations[0].disk.set()
        await run.buffer.add_ready(PER_STEP)
    kept = {checkpoint.manifest.step: checkpoint for checkpoint in run.checkpoints.list_checkpoints()}
    assert [line.step for line in kept[2].ledger()] == [1, 2]
    assert (kept[2].learner / "weights").read_text() == "2"
    assert kept[2].lineage.entries[kept[2].manifest.version].step == 2
    assert max(entry.step for entry in kept[2].lineage.entries.values()) == 2
    assert kept[2].manifest.accounting["trained"] == 2 * PER_STEP * 2
    assert run.steps_kept == [1, 2, 3, 4]


async def test_steps_go_on_while_weights_are_written_and_versions_are_offered_in_order(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.change({"checkpoint.every_steps": 100, "learner.publish_every": 2})
    async with going(run, until_step=3):
        assert run.weight_sync.offered == [], "an engine was told of weights that are not there yet"
        run.generations[0].disk.set()
        await run.buffer.add_ready(PER_STEP)
    assert [manifest.step for manifest in run.weight_sync.offered] == [2, 4]


async def test_a_checkpoint_that_cannot_be_written_costs_no_step(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.change({"checkpoint.every_steps": 1})
    await run.buffer.add_ready(4 * PER_STEP)
    await run.training.recovery.publish_initial_weights()
    run.generations[0].failing_saves = 2
    await run.training.run()
    assert run.saved == [0, 3, 4]
    assert run.steps_kept == [1, 2, 3, 4], "the steps of a checkpoint that failed are in the next one's accounting"
    failed = [event for event in read_events(tmp_path) if event["kind"] == "checkpoint.failed"]
    assert [(event["step"], event["failures"]) for event in failed] == [(1, 1), (2, 2)]
    assert str(tmp_path / "checkpoints" / "step-000001") in str(failed[0]["why"])
    assert run.buffer.committed == [0, 3, 4], "the journal has forgotten what no checkpoint has"


async def test_a_disk_that_stays_full_ends_the_run_even_after_its_last_step(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    await run.buffer.add_ready(4 * PER_STEP)
    await run.training.recovery.publish_initial_weights()
    run.generations[0].failing_saves = 100
    with pytest.raises(CheckpointSaveError, match="no space"):
        await run.training.run()
    assert run.generations[0].failing_saves == 97
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"step-000000"}


async def test_a_learner_that_dies_while_writing_a_checkpoint_takes_the_run_back_to_the_one_before(
    tmp_path: Path,
) -> None:
    run = TrainingRun(tmp_path, dies_at=[4])
    run.change({"learner.publish_every": 100})
    async with going(run, until_step=3):
        run.generations[0].failing_saves = 1  # as good as dead: it does not come to the end
        await run.buffer.add_ready(PER_STEP)
        while len(run.generations) < 2:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
        run.generations[0].disk.set()
    assert run.buffer.calls[run.buffer.calls.index("rewind 0") :].count("mark 3") == 1
    assert run.steps_kept == [1, 2, 3, 4]


async def test_an_interrupted_run_finishes_the_checkpoint_that_it_writes(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.change({"learner.publish_every": 100})
    async with going(run, until_step=3) as task:
        task.cancel()
        await asyncio.sleep(0)
        run.generations[0].disk.set()
    assert run.saved == [0, 2]
    assert run.buffer.committed == [0, 2]


async def test_a_restarted_learner_continues_from_the_newest_intact_checkpoint(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path, dies_at=[4])
    run.change({"learner.publish_every": 100})
    torn: list[Path] = []
    run.checkpoints.on_torn = lambda path, _: torn.append(path)
    async with going(run, until_step=3):
        run.generations[0].disk.set()
        await run.training.writer.wait_saved()
        (tmp_path / "checkpoints" / "step-000002" / "learner" / "weights").write_text("4")
        await run.buffer.add_ready(PER_STEP)
    assert "rewind 0" in run.buffer.calls
    assert torn == [tmp_path / "checkpoints" / "step-000002.torn"]
    assert run.steps_kept == [1, 2, 3, 4]


class SharingEngine:
    """Notes in the learner's own list when it leaves the device and takes it back."""

    def __init__(self, run: TrainingRun) -> None:
        self.run = run

    async def offload_memory(self, lease_s: float, deadline_s: float) -> None:
        self.run.generations[-1].calls.append("offload")

    async def stage_weights(self, manifest: WeightManifest, deadline_s: float) -> None:
        pass

    async def load_weights(
        self, manifest: WeightManifest, deadline_s: float, *, wait_for_restart: bool
    ) -> WeightLoadReport:
        self.run.generations[-1].calls.append("serve")
        return WeightLoadReport(version=manifest.version, pause_ms=0.0, load_ms=1.0, prefetch_ms=1.0, offloaded_s=1.0)


@asynccontextmanager
async def sharing(run: TrainingRun) -> AsyncGenerator[SharingEngine]:
    """Learner and engine share a device; step 0 is kept and served, and what was told until then forgotten."""
    engine = SharingEngine(run)
    run.weight_sync.engines = (LocalRemote(engine, "engine-0"),)
    run.training.learner.colocation = ColocationManager(
        colocated=True, weight_sync=run.weight_sync, lease_s=60.0, timeout_s=SOON_S
    )
    async with asyncio.TaskGroup() as group:
        pushing = group.create_task(run.weight_sync.run())
        run.weight_sync.set_served(await run.training.recovery.publish_initial_weights())
        assert on_device(run.generations[0].calls) == ["offload", "publish", "save", "sleep"]
        run.generations[0].calls.clear()
        try:
            yield engine
        finally:
            pushing.cancel()


def on_device(calls: Sequence[str]) -> list[str]:
    """``calls`` without leases that began anew."""
    kept = list[str]()
    learning = False
    for word in calls:
        if word != "offload" or not learning:
            kept.append(word)
        learning = (learning or word == "offload") and word != "serve"
    return kept


async def test_learner_and_engine_are_never_on_a_shared_device_at_the_same_time(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.generations[0].stale_at = [2]
    await run.buffer.add_ready(5 * PER_STEP)
    async with sharing(run), asyncio.timeout(SOON_S):
        await run.training.run()
    calls = on_device(run.generations[0].calls)
    step, stale = ["offload", "step", "publish", "sleep", "serve"], ["offload", "step", "sleep", "serve"]
    kept = ["offload", "step", "publish", "save", "sleep", "serve"]
    assert calls == [*step, *stale, *kept, *step, *kept]
    assert run.weight_sync.served is not None
    assert run.weight_sync.served.step == 4


async def test_engines_stay_offloaded_until_a_dead_learner_is_restarted(tmp_path: Path) -> None:
    """An engine that took its memory back too early would find none."""
    run = TrainingRun(tmp_path, dies_at=[3])
    await run.buffer.add_ready(4 * PER_STEP)
    async with sharing(run), asyncio.timeout(SOON_S):
        await run.training.run()
    first, second = (on_device(generation.calls) for generation in run.generations)
    assert first[-2:] == ["offload", "step"]
    assert second[:6] == ["offload", "load", "publish", "sleep", "sleep", "serve"]
    assert run.training.step == 4
    assert not run.training.learner.colocation.learner_active


async def test_the_engine_serves_again_after_a_run_that_ends_early(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.change({"stop.after_trajectories": 1, "checkpoint.every_steps": 100})
    await run.buffer.add_ready(PER_STEP)
    async with sharing(run), asyncio.timeout(SOON_S):
        await run.training.run()
    assert run.weight_sync.served is not None
    assert not run.training.learner.colocation.learner_active


class FakeOnlineEvaluation:
    """An evaluation of every second step, which is over when it is let; notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.free = asyncio.Event()
        self.free.set()

    async def on_published(self, manifest: WeightManifest) -> None:
        self.calls.append(f"published {manifest.step}")

    async def on_rollback(self, step: int) -> None:
        self.calls.append(f"rolled back {step}")

    async def wait_idle(self) -> None:
        self.calls.append("idle")
        await self.free.wait()

    def take_score(self) -> OnlineEvaluationScore | None:
        return OnlineEvaluationScore(3, PassRateEstimate(0.5, None, 8, 2)) if "published 3" in self.calls else None

    async def request_evaluation(self, reason: str) -> str:
        return reason


async def test_evaluations_are_notified_of_published_and_rolled_back_steps(tmp_path: Path) -> None:
    """Without this, a step is never evaluated, or a step that was rolled back counts as the best."""
    run = TrainingRun(tmp_path, dies_at=[4])
    evaluations = FakeOnlineEvaluation()
    run.evaluate_with(evaluations)
    evaluations.free.clear()
    run.checkpoints.record_score(0, 0.1)
    run.checkpoints.record_score(3, 0.9)
    await run.go()
    assert evaluations.calls == [*(f"published {step}" for step in (1, 2, 3)), "rolled back 2",
                          *(f"published {step}" for step in (2, 3, 4))]  # fmt: skip
    assert run.checkpoints.scores() == {0: 0.1}
    lines = read_metrics(tmp_path)
    assert [line.get("evaluation_step") for line in lines] == [None, None, 3, 3]
    assert lines[3]["evaluation_pass_at_1"] == 0.5


async def test_on_a_shared_device_each_turn_of_the_learner_waits_once_for_evaluations(
    tmp_path: Path,
) -> None:
    """Without this, an attempt is sampled from two sets of weights, or the run waits for ever."""
    run = TrainingRun(tmp_path)
    evaluations = FakeOnlineEvaluation()
    await run.buffer.add_ready(4 * PER_STEP)
    async with sharing(run), asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        run.evaluate_with(evaluations)
        evaluations.free.clear()
        training = group.create_task(run.training.run())
        while not evaluations.calls:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
        assert on_device(run.generations[0].calls) == []
        evaluations.free.set()
        await training
    offloads = on_device(run.generations[0].calls).count("offload")
    assert evaluations.calls.count("idle") == offloads == 4


async def test_the_best_checkpoint_is_exported_by_the_learner_that_has_trained(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    await run.go()
    run.checkpoints.record_score(2, 0.9)
    run.checkpoints.record_score(4, 0.5)
    best = await export_best_checkpoint(tmp_path, run.checkpoints, run.training.learner, run.events)
    assert best is not None
    assert (best.step, best.pass_at_1, best.checkpoint.name) == (2, 0.9, "step-000002")
    assert best.model is not None
    assert best.model.parent == tmp_path / "best"
    assert (best.model / "weights").read_text() == "2"
    calls = list(run.generations[0].calls)
    assert await export_best_checkpoint(tmp_path, run.checkpoints, run.training.learner, run.events) == best
    assert run.generations[0].calls == calls, "it was written again"
    run.checkpoints.record_score(4, 0.9)
    later = await export_best_checkpoint(tmp_path, run.checkpoints, run.training.learner, run.events)
    assert later is not None
    assert later.step == 4
    assert [later.model] == list((tmp_path / "best").iterdir())


async def test_a_best_checkpoint_that_cannot_be_exported_is_named_and_ends_no_run(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    await run.go()
    assert await export_best_checkpoint(tmp_path, run.checkpoints, run.training.learner, run.events) is None
    run.checkpoints.record_score(2, 0.9)
    (tmp_path / "checkpoints" / "step-000002" / "learner" / "weights").write_text("4")
    best = await export_best_checkpoint(tmp_path, run.checkpoints, run.training.learner, run.events)
    assert best is not None
    assert (best.step, best.model) == (2, None)
    texts = [str(event["text"]) for event in of_kind(run, "alert.raised")]
    assert ["no evaluated step has" in texts[0], "could not be exported" in texts[1]] == [True, True]


PROBE = ParitySampleSettings(
    prompts=((1, 2), (3,)), stop_token_ids=(9,), temperature=1.0, context_tokens=16, deadline_s=SOON_S
)


def probing(run: TrainingRun, engine: object, every_steps: int = 2) -> None:
    """Let ``run`` look for parity with ``engine``."""
    run.weight_sync.engines = (LocalRemote(engine, "engine-0"),)
    checker = run.training.parity
    checker.settings, checker.every_steps, checker.monitor = PROBE, every_steps, ParityMonitor(1e-3, "all alike")


def up_to_date(run: TrainingRun, gap: float = 0.0) -> FakeParityEngine:
    """An engine that always serves what the learner has."""
    return FakeParityEngine(lambda: run.training.version, gap)


def of_kind(run: TrainingRun, kind: str) -> list[dict[str, JsonValue]]:
    return [event for event in read_events(run.run_dir) if event["kind"] == kind]


async def test_parity_is_checked_before_the_first_step_and_at_its_interval(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    engine = up_to_date(run, gap=0.01)
    probing(run, engine)
    await run.go()
    assert run.generations[0].looked == [0, 2]
    assert [each.version for each in run.training.lineage.entries.values() if each.step in {0, 2}] == [
        event["version"] for event in of_kind(run, "parity.measured")
    ]
    lines = read_metrics(tmp_path)
    assert ["parity_check_k3" in line for line in lines] == [True, False, True, False]
    assert lines[0]["parity_check_k3"] == pytest.approx(5e-5, rel=0.01)
    assert lines[0]["parity_check_tokens"] == 16
    assert not of_kind(run, "parity.skipped")
    assert not of_kind(run, "alert.raised")


async def test_a_run_that_begins_out_of_parity_takes_no_step(tmp_path: Path) -> None:
    """Otherwise it would learn from tokens that its policy never sampled."""
    run = TrainingRun(tmp_path)
    probing(run, up_to_date(run, gap=0.3))
    with pytest.raises(UserError, match=r"k3 0\.05 is above parity\.max_k3 = 0\.001.*all alike"):
        await run.go()
    assert run.training.step == 0
    assert run.generations[0].stepped == []
    assert "lease" not in run.buffer.calls
    assert run.saved == [0], "with a higher limit it goes on from there"
    (event,) = of_kind(run, "parity.measured")
    assert (event["step"], event["tokens"], event["limit"]) == (0, 16, 1e-3)


async def test_a_resumed_run_begins_with_a_parity_check(tmp_path: Path) -> None:
    first = TrainingRun(tmp_path)
    first.change({"run.steps": 2})
    await first.go()
    second = TrainingRun(tmp_path, buffer=first.buffer)
    second.training.state.start_number = 2
    probing(second, up_to_date(second, gap=0.3))
    await second.training.recovery.resume_from(second.checkpoints.list_checkpoints()[-1])
    with pytest.raises(UserError, match="disagree"):
        await second.training.run()
    assert second.generations[0].stepped == []


async def test_a_later_loss_of_parity_is_reported_and_the_run_goes_on(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    engine = up_to_date(run)
    probing(run, engine, every_steps=1)
    await run.buffer.add_ready(2 * PER_STEP)
    await run.training.recovery.publish_initial_weights()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        group.create_task(run.training.run())
        while run.training.step < 2 or not run.buffer.waiting:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
        engine.gap = 0.3
        await run.buffer.add_ready(2 * PER_STEP)
    assert run.training.step == 4
    (event,) = of_kind(run, "alert.raised")
    assert (event["name"], "disagree" in str(event["text"])) == ("parity", True)
    assert len(of_kind(run, "parity.measured")) == 4


async def test_a_parity_check_without_an_engine_is_postponed_and_reported_once(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    probing(run, FakeParityEngine(lambda: WeightVersion(77)), every_steps=100)
    await run.go()
    assert run.training.step == 4, "the learner has waited for weights to be served"
    (event,) = of_kind(run, "parity.skipped")
    assert event["step"] == 1
    assert "no engine serves" in str(event["why"])
    assert run.generations[0].looked == []


async def test_a_postponed_parity_check_runs_before_the_first_possible_step(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    engine = FakeParityEngine(lambda: WeightVersion(77) if run.training.step < 2 else run.training.version)
    probing(run, engine, every_steps=100)
    await run.go()
    assert run.generations[0].looked == [2]
    assert [event["step"] for event in of_kind(run, "parity.skipped")] == [1]
    assert ["parity_check_k3" in line for line in read_metrics(tmp_path)] == [False, False, True, False]


async def test_parity_is_checked_again_after_a_restart_of_the_learner(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path, dies_at=[3])
    probing(run, up_to_date(run), every_steps=100)
    await run.go()
    assert [learner.looked for learner in run.generations] == [[0], [2]]
    assert run.training.step == 4


async def test_a_learner_that_dies_during_a_parity_check_is_restarted(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path, dies_at=[LOOKING])
    probing(run, up_to_date(run), every_steps=100)
    await run.go()
    assert [learner.looked for learner in run.generations] == [[], [0]]
    assert run.training.step == 4


async def test_on_a_shared_device_a_parity_check_samples_and_measures_in_separate_turns(
    tmp_path: Path,
) -> None:
    """Without this, one of them is called while the other has its memory."""

    class Taking(FakeParityEngine):
        async def offload_memory(self, lease_s: float, deadline_s: float) -> None:
            run.generations[-1].calls.append("offload")

        async def load_weights(self, manifest: WeightManifest, deadline_s: float) -> WeightLoadReport:
            run.generations[-1].calls.append("serve")
            return WeightLoadReport(
                version=manifest.version, pause_ms=0.0, load_ms=1.0, prefetch_ms=1.0, offloaded_s=1.0
            )

        async def generate(self, request: GenerateRequest) -> GenerateReply:
            run.generations[-1].calls.append("sample")
            return await super().generate(request)

    run = TrainingRun(tmp_path)
    await run.buffer.add_ready(4 * PER_STEP)
    async with sharing(run), asyncio.timeout(SOON_S):
        probing(run, Taking(lambda: run.training.version))
        await run.training.run()
    calls = on_device(run.generations[0].calls)
    sampled = ["sample"] * len(PROBE.prompts)
    step, kept = ["publish", "sleep", "serve"], ["publish", "save", "sleep", "serve"]
    looked = [*sampled, "offload", "logprobs", "step"]
    assert calls == [*looked, *step, "offload", "step", *kept, *looked, *step, "offload", "step", *kept]


# -- what a person asks for -------------------------------------------------------------------------------------------


async def until_waiting(run: TrainingRun) -> None:
    """The loop has taken all the steps that it can, and waits for a batch."""
    while not run.buffer.waiting:  # noqa: ASYNC110  no event tells
        await asyncio.sleep(0)


async def test_a_paused_run_takes_no_step_and_its_pause_does_not_count_as_waiting(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    await run.buffer.add_ready(4 * PER_STEP)
    await run.training.recovery.publish_initial_weights()
    run.step_hooks.pause()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        going = group.create_task(run.training.run())

        async def step() -> int:
            return run.training.step

        assert await run.step_hooks.run_between_steps(step) == 0
        assert not run.buffer.groups_of_step
        run.step_hooks.paused_s = 3600.0  # so long it seems to have stood
        run.step_hooks.resume()
        await going
    assert run.training.step == 4
    assert read_metrics(tmp_path)[0]["wait_s"] < 0, "what it stood is no wait for a batch"


async def test_a_drained_run_trains_the_buffered_trajectories_and_ends(tmp_path: Path) -> None:
    """A batch and a half: the last step has what is left."""
    run = TrainingRun(tmp_path)
    await run.buffer.add_ready(PER_STEP + 1)
    await run.training.recovery.publish_initial_weights()
    run.step_hooks.request_stop(StopReason.DRAINED)
    async with asyncio.timeout(SOON_S):
        await run.training.run()
    assert run.buffer.groups_of_step == {1: [0, 1], 2: [2]}
    assert run.training.state.stop_reason is StopReason.DRAINED
    assert run.steps_kept == [1, 2]


async def test_a_drained_run_waits_for_open_groups(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.scheduler.open_groups = 1
    await run.training.recovery.publish_initial_weights()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        going = group.create_task(run.training.run())
        await until_waiting(run)
        run.step_hooks.request_stop(StopReason.DRAINED)
        await run.buffer.add_ready(1)
        await until_waiting(run)
        assert not going.done()
        run.scheduler.open_groups = 0
        await run.buffer.notify_progress()
        await going
    assert run.buffer.groups_of_step == {1: [0]}


async def test_a_run_that_is_stopped_on_request_ends_between_two_steps_and_keeps_its_steps(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    await run.buffer.add_ready(3 * PER_STEP)
    await run.training.recovery.publish_initial_weights()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        going = group.create_task(run.training.run())
        await until_waiting(run)
        run.step_hooks.request_stop(StopReason.STOPPED_BY_REQUEST)
        await run.buffer.notify_progress()
        await going
    assert (run.training.step, run.training.state.stop_reason) == (3, StopReason.STOPPED_BY_REQUEST)
    assert run.steps_kept == [1, 2, 3]


async def test_a_requested_checkpoint_is_written_while_the_run_goes_on(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.change({"checkpoint.every_steps": 100})
    await run.buffer.add_ready(PER_STEP)
    await run.training.recovery.publish_initial_weights()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        going = group.create_task(run.training.run())
        await until_waiting(run)
        pending = group.create_task(run.step_hooks.run_between_steps(run.training.checkpoint_now))
        await asyncio.sleep(0)
        await run.buffer.notify_progress()
        await run.training.wait_checkpoint(await pending)
        assert run.saved == [0, 1]
        run.step_hooks.request_stop(StopReason.STOPPED_BY_REQUEST)
        await run.buffer.notify_progress()
        await going


async def test_a_requested_checkpoint_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    run.change({"checkpoint.every_steps": 100})
    await run.buffer.add_ready(PER_STEP)
    await run.training.recovery.publish_initial_weights()
    run.generations[0].failing_saves = 1
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        going = group.create_task(run.training.run())
        await until_waiting(run)
        pending = group.create_task(run.step_hooks.run_between_steps(run.training.checkpoint_now))
        await asyncio.sleep(0)
        await run.buffer.notify_progress()
        with pytest.raises(UserError, match="could not be written"):
            await run.training.wait_checkpoint(await pending)
        run.step_hooks.request_stop(StopReason.STOPPED_BY_REQUEST)
        await run.buffer.notify_progress()
        await going
    assert run.saved == [0, 1], "the last one found space"


async def test_a_learner_that_dies_during_a_request_is_restarted_and_the_caller_gets_the_error(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    await run.buffer.add_ready(4 * PER_STEP)
    await run.training.recovery.publish_initial_weights()

    async def die() -> None:
        raise ActorDied(run.actor, "killed")

    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        pending = group.create_task(_error_of(run.step_hooks.run_between_steps(die)))
        await asyncio.sleep(0)
        await run.training.run()
    assert isinstance(pending.result(), ActorDied)
    assert (run.training.step, len(run.generations)) == (4, 2)


async def _error_of(work: Awaitable[object]) -> Exception | None:
    try:
        await work
    except Exception as error:  # noqa: BLE001  # what is looked for
        return error
    return None
