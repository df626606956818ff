"""``longshore ctl RUN status|list|pause|resume|drain|retune|cancel|…``: show a run's state, and steer it.

``pause`` starts no more rollouts and holds the learner before its next step, ``resume`` continues; ``drain`` trains the
rollouts in flight and ends the run, ``stop`` ends it after the current step; ``drain ENGINE`` lets one engine finish
its requests and restarts its server; ``retune KEY=VALUE`` changes a key for the rest of the run and its resumes;
``cancel ID`` gives up a rollout or group; ``checkpoint-now`` saves the current step; ``evaluate-now`` evaluates the
newest weights during training.  Each returns when the run confirms; ``evaluate-now`` when the evaluation has started.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import Field
from tyro.conf import Positional

from launch.control.request_client import submit_and_wait
from launch.control.requests import ControlAction, ControlRequest, make_request
from launch.control.status import format_rollouts, format_status, read_rollouts, read_status
from launch.run_records.retunable_keys import RETUNABLE_KEYS, parse_change
from protocol.cli.arguments import CommandArguments, Flag, JsonFlag, Text, one_of, option
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, error_console, output_console
from protocol.errors import UserError
from protocol.run_directory.layout import NoSuchRunError
from protocol.run_directory.run_arguments import RunPath
from protocol.run_directory.run_status import read_run_status

_STATUS, _LIST = "status", "list"
_TIMEOUT_S = 120.0
_ARGUMENTS = {ControlAction.RETUNE: "KEY=VALUE …", ControlAction.CANCEL: "ID"}
"""Placeholder of the words after an action; ``drain`` may have an engine, the others nothing."""


def parse_request(action: ControlAction, words: Sequence[str], reason: str) -> ControlRequest:
    """Return the request of ``action`` with ``words``.  Raises UserError if they do not fit."""
    if action in {ControlAction.CANCEL, ControlAction.DRAIN} and len(words) > 1:
        raise UserError(f"{action.value} takes one name, not {len(words)}: repeat the command for each")
    if action not in {*_ARGUMENTS, ControlAction.DRAIN} and words:
        raise UserError(f"{action.value} takes no words: leave '{words[0]}' out")
    if action in _ARGUMENTS and not words:
        known = f"; these can be changed: {', '.join(RETUNABLE_KEYS)}" if action is ControlAction.RETUNE else ""
        raise UserError(f"{action.value} needs more: write {action.value} {_ARGUMENTS[action]}{known}")
    if action is ControlAction.RETUNE:
        return make_request(action, reason=reason, changes=dict(map(parse_change, words)))
    return make_request(action, reason=reason, target=words[0] if words else "")


class ControlArguments(CommandArguments):
    """Show a run's state, and steer it.

    Example: longshore ctl my-run retune in_flight=64
    """

    run: RunPath
    action: Positional[Annotated[str, one_of([_STATUS, _LIST, *(each.value for each in ControlAction)]), option()]]
    """View or request."""
    words: Positional[Annotated[tuple[str, ...], option("[WORD ...]")]] = ()
    """retune: KEY=VALUE …; cancel: a group or trajectory; drain: an engine."""
    reason: Text = ""
    """Reason, recorded in the run's events."""
    content: Flag = False
    """list: also show text written by agents."""
    timeout_s: Annotated[float, option("S"), Field(ge=0)] = _TIMEOUT_S
    """Seconds to wait for the run's confirmation."""
    as_json: JsonFlag = False


def run(given: ControlArguments, out: JsonOutput) -> int:
    """Show the run, or send a request and wait for the answer."""
    if not given.run.is_dir():
        raise NoSuchRunError(given.run)
    if given.action in {_STATUS, _LIST}:
        if given.words:
            raise UserError(f"{given.action} takes no words: leave '{given.words[0]}' out")
        return _show(given.run, given.action, out, content=given.content)
    return _request(
        given.run, parse_request(ControlAction(given.action), given.words, given.reason), given.timeout_s, out
    )


def _show(run_dir: Path, what: str, out: JsonOutput, *, content: bool) -> int:
    if what == _STATUS:
        status = read_status(run_dir)
        out.set_result(asdict(status))
        lines = format_status(status)
    else:
        rollouts = read_rollouts(run_dir, content=content)
        out.set_result(
            {"run": run_dir.resolve().name, "status": read_run_status(run_dir), "rollouts": list(map(asdict, rollouts))}
        )
        lines = format_rollouts(rollouts)
    for line in lines:
        output_console().print(line)
    return EXIT_OK


def _request(run_dir: Path, request: ControlRequest, timeout_s: float, out: JsonOutput) -> int:
    result = {"run": run_dir.resolve().name, "request": request.id, "action": request.action.value}
    try:
        answer = submit_and_wait(run_dir, request, timeout_s)
    except TimeoutError:
        text = f"the run has not answered within {timeout_s:g} s; the request stays pending"
        out.set_result(result | {"confirmed": False, "text": text})
        error_console().print(f"{text}: longshore ctl {run_dir} status")
        return EXIT_FAILED
    out.set_result(result | {"confirmed": True, "text": answer.text})
    output_console().print(answer.text)
    return EXIT_OK


COMMAND = Command("ctl", ControlArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
