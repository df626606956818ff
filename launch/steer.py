"""``python -m launch.steer RUN pause|resume|drain|set|evaluate``: pause, drain or retune a run while it goes on.

``pause`` lets no episode begin, ``drain`` no group, ``resume`` goes on; ``set in_flight=64 lead=1.5 slack=0.5`` changes
how much is out at once, and ``set in_flight=`` gives one of them back to the run's own settings.  It is written to the
run's ``steering.json``; the driver follows it within seconds, and a run that is resumed later keeps to it.
``evaluate`` asks for an evaluation of the newest weights, beside training (:mod:`launch.evaluation_request`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from actors.admission import Flow
from launch.evaluation_request import REQUEST_FILE, request_evaluation
from launch.rundir import is_running, stored_config
from launch.steering import STEERING_FILE, Steering, read_steering, write_steering
from protocol.cli.exits import main_guard
from protocol.cli.output import error_console, shown
from protocol.cli.parser import Parser, parsed
from protocol.cli.words import did_you_mean
from protocol.errors import UserError

_FLOWS = {"pause": Flow.PAUSE, "drain": Flow.DRAIN, "resume": Flow.RUN}
_EVALUATE = "evaluate"
_KEYS = ("in_flight", "lead", "slack")


def steer(run_dir: Path, action: str, changes: Sequence[str] = ()) -> Steering:
    """Write what is asked, and give it back.  Raises UserError."""
    stored_config(run_dir)
    before = read_steering(run_dir)
    if action != "set" and changes:
        raise UserError(f"{action} takes nothing after it: use set {' '.join(changes)}")
    if action == "set" and not changes:
        raise UserError(f"set what? For example: set in_flight=64; the keys are {', '.join(_KEYS)}")
    changed = {"flow": _FLOWS[action]} if action in _FLOWS else dict(_change(text) for text in changes)
    try:
        asked = Steering.model_validate({**before.model_dump(), **changed})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(f"set {key}={first['input']}: {first['msg'][0].lower()}{first['msg'][1:]}") from error
    write_steering(run_dir, asked)
    return asked


def _evaluate(run_dir: Path, changes: Sequence[str]) -> str:
    """Ask for it; the file that says so.  Raises UserError."""
    if changes:
        raise UserError(f"{_EVALUATE} takes nothing after it: it is of the run's own held-out tasks")
    request_evaluation(run_dir)
    return REQUEST_FILE


def _change(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if not equals or key not in _KEYS:
        raise UserError(f"set {text}: write KEY=VALUE; the keys are {', '.join(_KEYS)}{did_you_mean(key, _KEYS)}")
    return key, value or None


def main(argv: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = Parser(
        prog="python -m launch.steer",
        description="Pause, drain or retune a run while it goes on, or have its weights evaluated.",
        epilog="Example: python -m launch.steer runs/my-run set in_flight=64",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("action", choices=[*_FLOWS, "set", _EVALUATE], help="what the run is to do")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help=f"for set: {', '.join(_KEYS)}")
    parser.add_argument("--json", action="store_true", help="print what is asked of the run as one JSON object")
    with parsed(parser, argv) as (given, out):
        if given.action == _EVALUATE:
            file = _evaluate(given.run, given.changes)
            out.set({"run": given.run.name, "evaluate": True})
        else:
            file, asked = STEERING_FILE, steer(given.run, given.action, given.changes)
            out.set({"run": given.run.name, **asked.model_dump(mode="json")})
        when = (
            "the run follows within seconds"
            if is_running(given.run)
            else "no driver runs it: it holds from --resume on"
        )
        error_console().print(f"written to {shown(given.run / file)}; {when}")


if __name__ == "__main__":
    sys.exit(main_guard(main))
