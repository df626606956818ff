"""Sends a request to a run and waits for the answer.

The answer is an event of the driver.  If the run ends first, the request is withdrawn; if it is only slow, the request
stays pending.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from launch.control.requests import REQUEST_ANSWERED_EVENT, ControlRequest, submit_request, withdraw_request
from launch.run_records.stored_config import find_resume_command, has_ended, load_stored_config, load_stored_tables
from protocol.cli.output import display_path
from protocol.errors import UserError
from protocol.run_directory.cursors import cursor_at_end
from protocol.run_directory.json_fields import get_text
from protocol.run_directory.layout import SFT_TABLE
from protocol.run_directory.run_status import is_running
from protocol.run_directory.run_tail import RunTail

_DRIVERS = ("events/driver-*.jsonl",)
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class ControlAnswer:
    ok: bool
    text: str


def require_running(run_dir: Path) -> None:
    """Raise UserError if no driver runs the run."""
    supervised = SFT_TABLE in load_stored_tables(run_dir)
    if not is_running(run_dir):
        if has_ended(run_dir):
            raise UserError(
                f"run {run_dir.name} has ended and takes no requests: longshore ctl {run_dir} status shows it"
            )
        raise UserError(
            f"run {run_dir.name} has no driver to take requests: {find_resume_command(run_dir)} continues it"
        )
    if supervised:
        raise UserError(
            f"run {run_dir.name} is supervised training, which takes no requests: Ctrl-C ends it, "
            f"{find_resume_command(run_dir)} continues"
        )
    load_stored_config(run_dir)


def submit_and_wait(
    run_dir: Path, request: ControlRequest, timeout_s: float, pause: Callable[[float], None] = time.sleep
) -> ControlAnswer:
    """Send a request and wait for the answer.

    Raises UserError if the run refuses or ends, TimeoutError after ``timeout_s``, when the request stays pending."""
    require_running(run_dir)
    tail = RunTail(run_dir, _DRIVERS, cursor_at_end(run_dir, _DRIVERS))
    submit_request(run_dir, request)
    deadline = time.monotonic() + timeout_s
    while True:
        alive = is_running(run_dir)  # read first, so that a last answer is seen
        if (answer := _answer(tail, request)) is not None:
            if not answer.ok:
                raise UserError(f"{request.action.value}: {answer.text}")
            return answer
        if not alive:
            withdraw_request(run_dir, request)
            raise UserError(f"run {run_dir.name} ended before it answered: see {display_path(run_dir / 'events')}")
        if time.monotonic() >= deadline:
            raise TimeoutError
        pause(_POLL_S)


def _answer(tail: RunTail, request: ControlRequest) -> ControlAnswer | None:
    for event in tail.iter_events():
        if get_text(event, "kind") == REQUEST_ANSWERED_EVENT and get_text(event, "request") == request.id:
            return ControlAnswer(event.get("ok") is True, get_text(event, "text"))
    return None
