"""Ask a run for something and wait for its word.

The answer is an event of the driver's.  A run that ends before it has answered is not asked any more; one that is only
slow still is, and does it when it comes to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from launch.control.requests import REQUEST_ANSWERED_EVENT, ControlRequest, submit_request, withdraw_request
from launch.run_records.run_directory import find_resume_command, has_ended, load_stored_config, load_stored_tables
from protocol.cli.output import display_path
from protocol.errors import UserError
from protocol.run_directory.cursors import cursor_at_end
from protocol.run_directory.json_fields import get_text
from protocol.run_directory.layout import SFT_TABLE
from protocol.run_directory.run_status import is_running
from protocol.run_directory.run_tail import RunTail

_DRIVERS = ("events/driver-*.jsonl",)
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class ControlAnswer:
    ok: bool
    text: str


def require_running(run_dir: Path) -> None:
    """Raises UserError where no driver has the run."""
    supervised = SFT_TABLE in load_stored_tables(run_dir)
    if not is_running(run_dir):
        if has_ended(run_dir):
            raise UserError(
                f"run {run_dir.name} has come to its end, so nobody can be asked: python -m launch.ctl {run_dir} "
                "status shows it"
            )
        raise UserError(
            f"no driver has run {run_dir.name}, so nobody can be asked: {find_resume_command(run_dir)} goes on with it"
        )
    if supervised:
        raise UserError(
            f"run {run_dir.name} is supervised training, which nobody steers: Ctrl-C ends it, "
            f"{find_resume_command(run_dir)} goes on"
        )
    load_stored_config(run_dir)


def submit_and_wait(
    run_dir: Path, request: ControlRequest, patience_s: float, pause: Callable[[float], None] = time.sleep
) -> ControlAnswer:
    """Ask, and wait for the answer.  Raises UserError where the run refuses, or has ended; TimeoutError where it has
    not answered in ``patience_s``, and may still do it."""
    require_running(run_dir)
    tail = RunTail(run_dir, _DRIVERS, cursor_at_end(run_dir, _DRIVERS))
    submit_request(run_dir, request)
    give_up = time.monotonic() + patience_s
    while True:
        alive = is_running(run_dir)  # before the look: what it said last is seen
        if (answer := _answer(tail, request)) is not None:
            if not answer.ok:
                raise UserError(f"{request.action.value}: {answer.text}")
            return answer
        if not alive:
            withdraw_request(run_dir, request)
            raise UserError(
                f"run {run_dir.name} ended before it answered: {display_path(run_dir / 'events')} tells how"
            )
        if time.monotonic() >= give_up:
            raise TimeoutError
        pause(_LOOK_S)


def _answer(tail: RunTail, request: ControlRequest) -> ControlAnswer | None:
    for event in tail.iter_events():
        if get_text(event, "kind") == REQUEST_ANSWERED_EVENT and get_text(event, "request") == request.id:
            return ControlAnswer(event.get("ok") is True, get_text(event, "text"))
    return None
