"""If these fail, a developer cannot tell which step, group or rollout a traceback was of, or finds none."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from protocol.run_directory.process_log import ProcessLog, bind_log_ids, get_logger

IDS = ("run", "writer", "node", "step", "group", "rollout")


@pytest.fixture
def place(tmp_path: Path) -> ProcessLog:
    return ProcessLog(tmp_path / "starts" / "1" / "logs" / "worker-0-0.jsonl", "demo-1", "worker-0-0", "node-0")


def lines(place: ProcessLog) -> list[dict[str, Any]]:
    return [json.loads(line) for line in place.path.read_text().splitlines()]


def fails() -> None:
    raise ConnectionError("reset")


def fails_after_a_warning() -> None:
    get_logger("launch.run").warning("before")
    fails()


def test_each_log_line_carries_the_bound_ids(place: ProcessLog) -> None:
    log = get_logger("actors.workers.rollout_worker")
    with place.handler_installed():
        log.info("outside", places=3)
        with bind_log_ids(group=7, rollout="train-g000007-s01-a0"):
            log.warning("inside")
            with bind_log_ids(step=4):
                log.info("deeper")
        log.info("outside again")
    ids = [tuple(line[name] for name in IDS) for line in lines(place)]
    run = ("demo-1", "worker-0-0", "node-0")
    assert ids == [
        (*run, None, None, None),
        (*run, None, 7, "train-g000007-s01-a0"),
        (*run, 4, 7, "train-g000007-s01-a0"),
        (*run, None, None, None),
    ]
    first = lines(place)[0]
    assert (first["level"], first["event"], first["logger"], first["places"]) == (
        "info",
        "outside",
        "actors.workers.rollout_worker",
        3,
    )
    assert isinstance(first["t"], float)


def test_a_library_error_carries_the_bound_ids_and_its_traceback(place: ProcessLog) -> None:
    """Otherwise a failure deep in a client could not be attributed to its episode."""
    with place.handler_installed(), bind_log_ids(rollout="train-g000001-s00-a0"):
        logging.getLogger("aiohttp").info("a library's chatter")
        try:
            fails()
        except ConnectionError:
            logging.getLogger("aiohttp").exception("call %s", "failed")
    (line,) = lines(place)
    assert (line["event"], line["level"], line["rollout"]) == ("call failed", "error", "train-g000001-s00-a0")
    assert "ConnectionError: reset" in line["exception"]
    assert "Traceback" in line["exception"]


async def test_concurrent_episodes_keep_their_log_ids_separate(place: ProcessLog) -> None:
    log = get_logger("actors.workers.rollout_worker")
    turn = asyncio.Barrier(2)

    async def episode(name: str) -> None:
        with bind_log_ids(rollout=name):
            await turn.wait()
            log.info(name)

    with place.handler_installed():
        async with asyncio.TaskGroup() as group:
            group.create_task(episode("a"))
            group.create_task(episode("b"))
    assert {line["event"]: line["rollout"] for line in lines(place)} == {"a": "a", "b": "b"}


def test_an_unwritable_log_prints_nothing_and_raises_nothing(
    place: ProcessLog, capfd: pytest.CaptureFixture[str]
) -> None:
    log = get_logger("learner.rank")
    with place.handler_installed():
        place.path.mkdir()  # it cannot be opened
        log.info("step computed")
        log.info("another")
    with ProcessLog(place.path / "there.jsonl", "r", "w", "n").handler_installed():
        log.info("step computed", odd=object())
    assert capfd.readouterr() == ("", "")


def test_a_process_without_a_log_file_writes_nothing_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    """The log of a command without a run leaves standard output to the command."""
    get_logger("launch.run.driver").info("phase")
    assert capfd.readouterr().out == ""


def test_logging_to_a_file_ends_with_its_run(place: ProcessLog) -> None:
    with place.handler_installed():
        pass
    get_logger("launch.run.driver").warning("later")
    assert not place.path.exists()


def test_a_disk_that_takes_nothing_hides_no_error() -> None:
    """A run whose disk fails ends by an error that says so, which logging must not replace by its own."""
    place = ProcessLog(Path("/dev/full"), "demo-1", "driver", "node-0")
    with pytest.raises(ConnectionError, match="reset"), place.handler_installed():
        fails_after_a_warning()
