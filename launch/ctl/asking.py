"""Ask a run for something and wait for its word.

The answer is an event of the driver's.  A run that ends before it has answered is not asked any more; one that is only
slow still is, and does it when it comes to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from launch.monitor.tail import RunReader, ends, text
from launch.run_files import SFT_TABLE
from launch.rundir import go_on, has_ended, is_running, stored_config, stored_values
from launch.steering.requests import ANSWERED, Request, ask, withdraw
from protocol.cli.output import shown
from protocol.errors import UserError

_DRIVERS = ("events/driver-*.jsonl",)
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Answer:
    ok: bool
    text: str


def require_running(run_dir: Path) -> None:
    """Raises UserError where no driver has the run."""
    supervised = SFT_TABLE in stored_values(run_dir)
    if not is_running(run_dir):
        if has_ended(run_dir):
            raise UserError(
                f"run {run_dir.name} has come to its end, so nobody can be asked: python -m launch.ctl {run_dir} "
                "status shows it"
            )
        raise UserError(f"no driver has run {run_dir.name}, so nobody can be asked: {go_on(run_dir)} goes on with it")
    if supervised:
        raise UserError(
            f"run {run_dir.name} is supervised training, which nobody steers: Ctrl-C ends it, {go_on(run_dir)} goes on"
        )
    stored_config(run_dir)


def answered(run_dir: Path, request: Request, patience_s: float, pause: Callable[[float], None] = time.sleep) -> Answer:
    """Ask, and wait for the answer.  Raises UserError where the run refuses, or has ended; TimeoutError where it has
    not answered in ``patience_s``, and may still do it."""
    require_running(run_dir)
    reader = RunReader(run_dir, _DRIVERS, ends(run_dir, _DRIVERS))
    ask(run_dir, request)
    give_up = time.monotonic() + patience_s
    while True:
        alive = is_running(run_dir)  # before the look: what it said last is seen
        if (answer := _answer(reader, request)) is not None:
            if not answer.ok:
                raise UserError(f"{request.action.value}: {answer.text}")
            return answer
        if not alive:
            withdraw(run_dir, request)
            raise UserError(f"run {run_dir.name} ended before it answered: {shown(run_dir / 'events')} tells how")
        if time.monotonic() >= give_up:
            raise TimeoutError
        pause(_LOOK_S)


def _answer(reader: RunReader, request: Request) -> Answer | None:
    for line in reader.read():
        event = line.value
        if event is not None and text(event, "kind") == ANSWERED and text(event, "request") == request.id:
            return Answer(event.get("ok") is True, text(event, "text"))
    return None
