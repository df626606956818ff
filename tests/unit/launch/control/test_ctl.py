"""If these fail, a person cannot see what a run does, is told that something is done which is not, or reads what an
agent wrote for somebody else."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from launch.config import RunConfig
from launch.control.ctl import COMMAND, parse_request
from launch.control.request_client import submit_and_wait
from launch.control.requests import (
    REQUEST_ANSWERED_EVENT,
    ControlAction,
    list_request_files,
    make_request,
    read_request,
)
from launch.control.status import format_rollouts, format_status, read_rollouts, read_status, strip_control_characters
from launch.run_records.run_directory import RunDirectory
from launch.run_records.stored_config import config_tables
from protocol.cli.exit_codes import EXIT_FAILED
from protocol.errors import UserError
from protocol.events import EventLog
from protocol.run_directory.layout import NoSuchRunError
from protocol.run_directory.run_status import RunStatus
from tests.support.fakes.fake_run import write_fake_run


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that goes on, as far as its files tell: six episodes are under way."""
    path = tmp_path / "run"
    write_fake_run(path, steps=3, finished=False)
    (path / "config.json").write_bytes(orjson.dumps({"start_number": 1, "config": config_tables(RunConfig())}))
    return path


@pytest.fixture
def alive(run_dir: Path) -> Iterator[Path]:
    """The same with a driver."""
    with RunDirectory.open(run_dir):
        yield run_dir


class FakeDriver:
    """Answers a request when it is given the time to."""

    def __init__(self, run_dir: Path, *, ok: bool = True, looks: int = 3) -> None:
        self.run_dir, self.ok, self.looks = run_dir, ok, looks
        self.log = EventLog(run_dir, "driver-1", "node-0")
        self.log.emit(REQUEST_ANSWERED_EVENT, request="an earlier one", ok=True, text="not this")

    def __call__(self, _: float) -> None:
        self.looks -= 1
        if self.looks == 0:
            (path,) = list_request_files(self.run_dir)
            self.log.emit(
                REQUEST_ANSWERED_EVENT, request=read_request(path).id, ok=self.ok, text="done" if self.ok else "no"
            )


def test_a_request_returns_the_answer_of_the_run(alive: Path) -> None:
    assert submit_and_wait(alive, make_request(ControlAction.PAUSE), 60.0, FakeDriver(alive)).text == "done"


def test_a_refused_request_is_a_user_error(alive: Path) -> None:
    with pytest.raises(UserError, match="pause: no"):
        submit_and_wait(alive, make_request(ControlAction.PAUSE), 60.0, FakeDriver(alive, ok=False))


def test_a_request_without_a_timely_answer_stays_pending(alive: Path) -> None:
    with pytest.raises(TimeoutError):
        submit_and_wait(alive, make_request(ControlAction.PAUSE), 0.0)
    assert len(list_request_files(alive)) == 1
    assert [request.action for request in read_status(alive).pending_requests] == ["pause"]


def test_a_request_is_withdrawn_if_the_run_ends_before_it_answers(run_dir: Path) -> None:
    directory = RunDirectory.open(run_dir)
    with pytest.raises(UserError, match="ended before it answered"):
        submit_and_wait(run_dir, make_request(ControlAction.PAUSE), 60.0, lambda _: directory.close())
    assert list_request_files(run_dir) == []


def test_a_request_to_a_run_that_has_ended_says_so(run_dir: Path) -> None:
    (run_dir / "summary.json").write_text("{}")
    with pytest.raises(UserError, match=r"run has ended.*status"):
        COMMAND.call([str(run_dir), "pause"])
    (run_dir / "summary.json").write_text('{"ended": "drained"}')
    with pytest.raises(UserError, match=r"--resume run"):
        COMMAND.call([str(run_dir), "pause"])


def test_a_request_to_a_run_without_a_driver_is_refused_with_the_resume_command(run_dir: Path) -> None:
    with pytest.raises(UserError, match=r"run run has no driver.*--resume run"):
        COMMAND.call([str(run_dir), "pause"])
    assert list_request_files(run_dir) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["retune"], "these can be changed: rollout.in_flight"),
        (["retune", "in_fligt=3"], "did you mean 'in_flight'"),
        (["cancel"], "cancel ID"),
        (["cancel", "1", "2"], "repeat the command for each"),
        (["drain", "engine-0", "engine-1"], "repeat the command for each"),
        (["pause", "now"], "takes no words"),
        (["status", "now"], "takes no words"),
        (["explode"], "is not one of status, list"),
    ],
)
def test_an_invalid_request_is_refused_before_it_reaches_the_run(alive: Path, words: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        COMMAND.call([str(alive), *words])
    assert list_request_files(alive) == []


def test_a_request_carries_its_reason_and_its_arguments() -> None:
    request = parse_request(ControlAction.RETUNE, ["in_flight=8"], "too slow")
    assert (request.reason, request.changes) == ("too slow", {"rollout.in_flight": "8"})
    assert parse_request(ControlAction.CANCEL, ["g12"], "").target == "g12"
    assert parse_request(ControlAction.DRAIN, ["engine-0"], "").target == "engine-0"
    assert parse_request(ControlAction.DRAIN, [], "").target == ""


def test_json_output_is_one_object_even_if_the_run_does_not_answer_in_time(
    alive: Path, capfdbinary: pytest.CaptureFixture
) -> None:
    assert COMMAND.call([str(alive), "pause", "--timeout-s", "0", "--json"]) == EXIT_FAILED
    output = json.loads(capfdbinary.readouterr().out)
    assert (output["run"], output["action"], output["confirmed"]) == ("run", "pause", False)


def test_the_status_is_read_from_the_files_of_the_run(alive: Path) -> None:
    log = EventLog(alive, "driver-1", "node-0")
    log.emit("alert.raised", name="clip", text="nothing is clipped", health=False)
    log.emit("alert.raised", name="disk", text="the disk fills", health=True)
    log.emit("alert.raised", name="idle", text="the learner waits", health=True)
    log.emit("alert.resolved", name="idle")
    log.emit("scheduler.flow", flow="pause", was="run", open_groups=0)
    status = read_status(alive)
    assert (status.status, status.phase, status.flow) == (RunStatus.RUNNING, "training", "pause")
    assert (status.step, status.steps) == (2, 3)
    assert status.running == 6
    assert status.trained > 0
    assert "reward_mean" in status.latest
    assert [alert.name for alert in status.alerts] == ["disk", "clip"], "health comes first"
    text = "\n".join(format_status(status))
    assert "running, training, paused · step 2/3 · 6 rollouts" in text
    assert "! the disk fills" in text
    assert f"at most {RunConfig().in_flight} rollouts in flight" in text
    assert status.retunable["rollout.in_flight"] == 0
    orjson.dumps(dataclasses.asdict(status))


def test_a_run_with_a_vanished_driver_is_shown_as_stopped(run_dir: Path) -> None:
    status = read_status(run_dir)
    assert (status.status, status.phase, status.running) == (RunStatus.STOPPED, "training", 0)
    assert format_status(status)[0].startswith("run: stopped · step 2/3")
    assert read_rollouts(run_dir, content=False) == []


def test_the_resume_command_is_shown_only_for_a_run_that_can_be_resumed(run_dir: Path) -> None:
    assert format_status(read_status(run_dir))[-1].startswith("to continue it: longshore cluster --resume run")
    (run_dir / "summary.json").write_text("{}")
    status = read_status(run_dir)
    assert (status.status, status.resume_command) == (RunStatus.FINISHED, "")


def test_supervised_training_takes_no_requests(run_dir: Path) -> None:
    (run_dir / "config.json").write_bytes(orjson.dumps({"config": {"run": {"name": "sft"}, "sft": {}}}))
    with pytest.raises(UserError, match=r"has no driver to take requests: longshore sft --resume run"):
        COMMAND.call([str(run_dir), "pause"])
    with RunDirectory.open(run_dir), pytest.raises(UserError, match="supervised training, which takes no requests"):
        COMMAND.call([str(run_dir), "pause"])
    (run_dir / "summary.json").write_text("{}")
    with pytest.raises(UserError, match="has ended"):
        COMMAND.call([str(run_dir), "pause"])


@pytest.mark.parametrize("action", ["status", "list", "pause"])
def test_a_folder_without_a_run_is_refused(tmp_path: Path, action: str) -> None:
    with pytest.raises(NoSuchRunError, match=f"no run '{tmp_path.name}' in"):
        COMMAND.call([str(tmp_path), action])


def test_a_damaged_run_has_a_status_all_the_same(alive: Path) -> None:
    (alive / "events" / "driver.jsonl").write_bytes(b"\0\xff{not json\n" * 3)
    (alive / "config.json").write_bytes(b"{")
    (alive / "requests").mkdir()
    (alive / "requests" / "1.json").write_bytes(b"{")
    status = read_status(alive)
    assert (status.status, status.in_flight, status.retunable) == (RunStatus.RUNNING, None, {})
    assert any(line.startswith("! ") and "config.json cannot be read" in line for line in format_status(status))


@pytest.mark.parametrize("record", [b"[]", b'{"config_changes": [7]}', b'{"config_changes": {}}'])
def test_an_invalid_record_gives_a_status_without_configuration_changes(alive: Path, record: bytes) -> None:
    (alive / "config.json").write_bytes(record)
    assert read_status(alive).config_changes == []


def test_text_of_an_agent_is_shown_only_on_request(alive: Path) -> None:
    withheld, shown = read_rollouts(alive, content=False), read_rollouts(alive, content=True)
    assert len(withheld) == len(shown) == 6
    commands = [rollout.content for rollout in shown]
    assert all(commands)
    text = orjson.dumps([dataclasses.asdict(rollout) for rollout in withheld]).decode()
    assert not any(command in text for command in commands)
    assert not any(command in line for command in commands for line in format_rollouts(withheld))
    assert all(
        strip_control_characters(command) in line
        for command, line in zip(commands, format_rollouts(shown), strict=True)
    )


def test_an_agent_cannot_move_the_terminals_cursor() -> None:
    assert strip_control_characters("a\x1b[2Jb\nc\u202ed\te") == "a�[2Jb⏎c�d e"
