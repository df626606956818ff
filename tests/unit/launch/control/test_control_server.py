"""If these fail, a person's word does not reach the run, is said to be done and is not, or is forgotten by a resume."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from actors.runtime.remote_errors import ActorUnavailable
from actors.scheduler.admission import RolloutFlow
from actors.scheduler.settings import SchedulerRunState
from launch.config import RunConfig
from launch.control import actions as actions_module
from launch.control import server as server_module
from launch.control.actions import CancelTarget, ControlActions, parse_cancel_target
from launch.control.pause_state import PAUSE_ALERT, is_paused
from launch.control.requests import (
    REQUEST_ANSWERED_EVENT,
    REQUEST_TAKEN_EVENT,
    ControlAction,
    ControlRequest,
    list_request_files,
    make_request,
    submit_request,
)
from launch.control.scheduler_state import SchedulerStateSender
from launch.control.server import ControlServer
from launch.control.step_hooks import StepHooks, StopReason
from launch.run_records.config_changes import read_changes
from launch.run_records.stored_config import config_tables, load_stored_config
from protocol.errors import UserError
from protocol.events import EventLog, JsonValue
from protocol.run_directory.run_tail import read_events
from tests.support.actors.local_actors import LocalRemote

SOON_S = 30.0


class RestartingScheduler:
    def __init__(self) -> None:
        self.run_states: list[SchedulerRunState] = []
        self.cancelled: list[tuple[int, int | None]] = []
        self.restarting = 0
        """So many calls, from now on, find nobody."""

    async def set_run_state(self, standing: SchedulerRunState) -> None:
        if self.restarting:
            self.restarting -= 1
            raise ActorUnavailable("scheduler", "is being restarted")
        self.run_states.append(standing)

    async def cancel_samples(self, group: int, sample: int | None) -> tuple[int, ...]:
        if group != 12:
            raise UserError(f"group {group} is not open")
        self.cancelled.append((group, sample))
        return (0, 3) if sample is None else (sample,)


class FakeTraining:
    """Stands between two steps whenever it is let."""

    def __init__(self) -> None:
        self.step_hooks, self.step = StepHooks(), 4
        self.kept: int | None = None
        self.full_disk = False

    async def checkpoint_now(self) -> int:
        return self.step

    async def wait_checkpoint(self, step: int) -> None:
        if self.full_disk:
            raise UserError("no space")
        self.kept = step

    async def run(self) -> None:
        while True:
            await self.step_hooks.run_pending()
            await asyncio.sleep(0)


class Scene:
    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.config = run_dir, RunConfig()
        record = {"start_number": 1, "config": config_tables(self.config)}
        (run_dir / "config.json").write_bytes(orjson.dumps(record))
        self.scheduler, self.training = RestartingScheduler(), FakeTraining()
        self.learned: list[tuple[int, float]] = []
        self.adopted: list[RunConfig] = []
        self.ended: list[str] = []
        self.drained: list[str] = []
        self.evaluated: list[str] = []
        """Why each was asked for."""
        self.scheduler_state = SchedulerStateSender(LocalRemote(self.scheduler))
        events = EventLog(run_dir, "driver-1", "node-0")
        self.actions = ControlActions(
            run_dir=run_dir,
            events=events,
            scheduler_state=self.scheduler_state,
            scheduler=LocalRemote(self.scheduler),
            training=self.training,
            step_hooks=self.training.step_hooks,
            config=self.config,
            apply_config=self.adopted.append,
            set_learning_rate_from=self.learn_from,
            cancel_episodes=self.cancel,
            drain_engine=self.drain_engine,
            evaluate=self.evaluate,
        )
        self.server = ControlServer(run_dir=run_dir, events=events, execute=self.actions.execute)

    async def learn_from(self, step: int, lr: float) -> None:
        self.learned.append((step, lr))

    async def drain_engine(self, name: str) -> bool:
        self.drained.append(name)
        return True

    async def cancel(self, trajectories: Sequence[str]) -> None:
        self.ended += trajectories

    async def evaluate(self, reason: str) -> str:
        if self.evaluated:
            raise UserError("it is still under way")
        self.evaluated.append(reason)
        return "it is under way"

    @asynccontextmanager
    async def open(self, *, trains: bool = True) -> AsyncGenerator[None]:
        """Run the control server and the training loop meanwhile."""
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.server.serve())]
            if trains:
                tasks.append(group.create_task(self.training.run()))
            yield
            for task in tasks:
                task.cancel()

    def events(self, kind: str) -> list[dict[str, JsonValue]]:
        return [event for event in read_events(self.run_dir) if event["kind"] == kind]

    async def answer(self, request: ControlRequest) -> tuple[bool, str]:
        submit_request(self.run_dir, request)
        return await self.answer_to(request)

    async def answer_to(self, request: ControlRequest) -> tuple[bool, str]:
        while True:
            for event in self.events(REQUEST_ANSWERED_EVENT):
                if event["request"] == request.id:
                    return event["ok"] is True, str(event["text"])
            await asyncio.sleep(0)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(server_module, "LOOK_S", 0.0)
    monkeypatch.setattr(actions_module, "RETRY_S", 0.0)
    return Scene(tmp_path)


async def test_a_pause_is_confirmed_once_the_learner_waits_and_persists_across_starts(scene: Scene) -> None:
    async with scene.open(trains=False):
        request = make_request(ControlAction.PAUSE, reason="lunch")
        submit_request(scene.run_dir, request)
        while not scene.scheduler.run_states:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
        assert scene.events(REQUEST_ANSWERED_EVENT) == [], "the learner is in the middle of a step"
        async with asyncio.TaskGroup() as group:
            running = group.create_task(scene.training.run())
            ok, text = await scene.answer_to(request)
            running.cancel()
    assert (ok, text) == (True, "no rollout begins, and the learner waits after step 4")
    assert scene.scheduler.run_states[-1].flow is RolloutFlow.PAUSE
    assert is_paused(scene.run_dir)
    (taken,) = scene.events(REQUEST_TAKEN_EVENT)
    assert (taken["action"], taken["reason"]) == ("pause", "lunch")
    assert list_request_files(scene.run_dir) == []


async def test_a_paused_run_continues_on_request(scene: Scene) -> None:
    async with scene.open():
        assert (await scene.answer(make_request(ControlAction.PAUSE)))[0]
        ok, text = await scene.answer(make_request(ControlAction.RESUME))
    assert (ok, text) == (True, "the run continues after step 4")
    assert [standing.flow for standing in scene.scheduler.run_states] == [RolloutFlow.PAUSE, RolloutFlow.RUN]
    assert not scene.training.step_hooks.paused
    assert not is_paused(scene.run_dir)
    (raised,), (resolved,) = scene.events("alert.raised"), scene.events("alert.resolved")
    assert raised["name"] == resolved["name"] == PAUSE_ALERT


async def test_a_request_is_repeated_until_a_restarting_scheduler_receives_it(scene: Scene) -> None:
    scene.scheduler.restarting = 3
    async with scene.open():
        assert (await scene.answer(make_request(ControlAction.PAUSE)))[0]
    assert [standing.flow for standing in scene.scheduler.run_states] == [RolloutFlow.PAUSE]


@pytest.mark.parametrize(
    ("action", "how"),
    [(ControlAction.DRAIN, StopReason.DRAINED), (ControlAction.STOP, StopReason.STOPPED_BY_REQUEST)],
)
async def test_a_run_that_is_asked_to_end_opens_no_group_and_is_no_longer_paused(
    scene: Scene, action: ControlAction, how: StopReason
) -> None:
    async with scene.open():
        assert (await scene.answer(make_request(ControlAction.PAUSE)))[0]
        assert (await scene.answer(make_request(action)))[0]
        assert (await scene.answer(make_request(ControlAction.PAUSE))) == (
            False,
            "the run is already ending on request",
        )
    assert scene.scheduler.run_states[-1].flow is RolloutFlow.DRAIN
    assert scene.training.step_hooks.requested_stop is how
    assert not is_paused(scene.run_dir), "what goes on with the run is not paused"


async def test_draining_an_engine_does_not_end_the_run(scene: Scene) -> None:
    async with scene.open():
        ok, text = await scene.answer(make_request(ControlAction.DRAIN, target="engine-0"))
    assert ok
    assert "its server is replaced" in text
    assert scene.drained == ["engine-0"]
    assert scene.training.step_hooks.requested_stop is None


async def test_retuned_keys_reach_the_run_its_record_and_the_learner(scene: Scene) -> None:
    changes = {"rollout.in_flight": "8", "learner.lr": "1e-5", "checkpoint.every_steps": "2"}
    async with scene.open():
        ok, text = await scene.answer(make_request(ControlAction.RETUNE, changes=changes, reason="too fast"))
    assert ok
    assert text.startswith("rollout.in_flight 0 → 8, from the next rollout request; learner.lr")
    after = load_stored_config(scene.run_dir)
    assert (after.rollout.in_flight, after.learner.lr, after.checkpoint.every_steps) == (8, 1e-5, 2)
    assert scene.adopted == [after]
    assert scene.learned == [(5, 1e-5)]
    assert scene.scheduler.run_states[-1].tuning == after.rollout_tuning
    assert [event["key"] for event in scene.events("run.config_changed")] == list(changes)
    first = read_changes(scene.run_dir)[0]
    assert (first.key, first.before, first.after, first.first_step, first.reason) == (
        *("rollout.in_flight", 0, 8, 5, "too fast"),
    )


async def test_retuning_rollout_requests_does_not_wait_for_a_step(scene: Scene) -> None:
    """A person who halves what is in flight because a step takes for ever would wait for ever."""
    async with scene.open(trains=False):
        assert (await scene.answer(make_request(ControlAction.RETUNE, changes={"rollout.in_flight": "8"})))[0]
    assert scene.scheduler.run_states[-1].tuning == load_stored_config(scene.run_dir).rollout_tuning


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (make_request(ControlAction.RETUNE, changes={"rollout.in_flight": "-3"}), "rollout.in_flight"),
        (
            make_request(ControlAction.RETUNE, changes={"staleness.max_staleness": "3"}),
            "staleness.max_staleness cannot be changed",
        ),
        (make_request(ControlAction.RETUNE, changes={"rollout.in_flight": "0"}), "already uses these values"),
        (
            make_request(ControlAction.CANCEL, target="before-g000001-s00"),
            "neither a training group nor a training trajectory",
        ),
        (make_request(ControlAction.CANCEL, target="13"), "group 13 is not open"),
    ],
)
async def test_an_impossible_request_is_refused_and_changes_nothing(
    scene: Scene, request_: ControlRequest, says: str
) -> None:
    before = (scene.run_dir / "config.json").read_bytes()
    async with scene.open():
        ok, text = await scene.answer(request_)
    assert not ok
    assert says in text
    assert (scene.run_dir / "config.json").read_bytes() == before
    assert (scene.adopted, scene.scheduler.run_states, scene.ended) == ([], [], [])


@pytest.mark.parametrize(
    ("target", "cancelled", "ended"),
    [
        ("train-g000012-s03-a1", (12, 3), ["train-g000012-s03"]),
        ("g12", (12, None), ["train-g000012-s00", "train-g000012-s03"]),
    ],
)
async def test_cancelled_episodes_end_where_they_run(
    scene: Scene, target: str, cancelled: tuple[int, int | None], ended: list[str]
) -> None:
    async with scene.open():
        assert (await scene.answer(make_request(ControlAction.CANCEL, target=target)))[0]
    assert scene.scheduler.cancelled == [cancelled]
    assert scene.ended == ended


async def test_a_checkpoint_request_is_answered_once_the_checkpoint_is_written_or_has_failed(scene: Scene) -> None:
    async with scene.open():
        assert await scene.answer(make_request(ControlAction.CHECKPOINT)) == (True, "the checkpoint of step 4 is kept")
        scene.training.full_disk = True
        assert await scene.answer(make_request(ControlAction.CHECKPOINT)) == (False, "no space")
    assert scene.training.kept == 4


async def test_an_evaluation_can_be_requested_during_a_pause_and_a_second_one_is_refused(scene: Scene) -> None:
    async with scene.open():
        await scene.answer(make_request(ControlAction.PAUSE))
        evaluate_now = make_request(ControlAction.EVALUATE, reason="it looks good")
        assert await scene.answer(evaluate_now) == (True, "it is under way")
        assert await scene.answer(make_request(ControlAction.EVALUATE)) == (False, "it is still under way")
    assert scene.evaluated == ["it looks good"]


async def test_a_request_that_the_end_of_the_run_overtakes_is_answered_and_removed(scene: Scene) -> None:
    request = make_request(ControlAction.CHECKPOINT)
    async with scene.open(trains=False):
        submit_request(scene.run_dir, request)
        while not scene.events(REQUEST_TAKEN_EVENT):  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
    assert await scene.answer_to(request) == (False, "the run ended before it could be done")
    assert list_request_files(scene.run_dir) == []


async def test_a_request_to_an_earlier_start_is_refused_by_the_next(scene: Scene) -> None:
    """A stop that came too late would end the run that somebody goes on with."""
    request = make_request(ControlAction.STOP)
    scene.server.run_started_at = request.t + 1
    async with scene.open():
        ok, text = await scene.answer(request)
    assert (ok, text) == (False, "the request was made to an earlier start of the run, which has ended: repeat it")
    assert scene.training.step_hooks.requested_stop is None


async def test_an_invalid_request_file_is_reported_and_removed(scene: Scene) -> None:
    (scene.run_dir / "requests").mkdir()
    (scene.run_dir / "requests" / "1.json").write_text('{"action": "explode"}')
    async with scene.open():
        while not scene.events(REQUEST_ANSWERED_EVENT):  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
    assert "is not a request" in str(scene.events(REQUEST_ANSWERED_EVENT)[0]["text"])
    assert list_request_files(scene.run_dir) == []


async def test_a_defect_costs_one_request_and_not_the_run(scene: Scene) -> None:
    async def broken(_: Sequence[str]) -> None:
        raise ZeroDivisionError("division by zero")

    scene.actions.cancel_episodes = broken
    async with scene.open():
        assert await scene.answer(make_request(ControlAction.CANCEL, target="12")) == (
            False,
            "ZeroDivisionError: division by zero",
        )
        assert (await scene.answer(make_request(ControlAction.CHECKPOINT)))[0]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("12", CancelTarget(12, None)),
        ("g000012", CancelTarget(12, None)),
        ("train-g000012", CancelTarget(12, None)),
        ("train-g000012-s03", CancelTarget(12, 3)),
        ("train-g000012-s03-a2", CancelTarget(12, 3)),
    ],
)
def test_a_cancel_target_is_accepted_in_every_form_of_its_name(text: str, target: CancelTarget) -> None:
    assert parse_cancel_target(text) == target
