"""``longshore trace RUN …``: write a timeline of a run for ui.perfetto.dev.

Engines, workers with each episode, the learner, copies of weights, buffer and scheduler are tracks; the time is seconds
since the run began.  It only reads, so a run that goes on is no slower for it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import orjson
from pydantic import BeforeValidator, Field

from launch.run_records.stored_config import load_stored_tables
from launch.trace.perfetto import build_trace_file
from launch.trace.run_timeline import RunTimeline, read_run_timeline
from launch.trace.trace_events import TimeWindow
from protocol.cli.arguments import CommandArguments, JsonFlag, one_word, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput, display_path, output_console
from protocol.errors import UserError
from protocol.files.filesystem import replace_file
from protocol.run_directory.run_arguments import RunPath

_STEPS = re.compile(r"(\d+)(?:-(\d+))?")


def _parse_steps(word: object) -> object:
    if not isinstance(word, str):
        return word
    match = _STEPS.fullmatch(word)
    if match is None:
        raise ValueError("write a step or a range, 4 or 4-6")
    return int(match[1]), int(match[2] or match[1])


class TraceArguments(CommandArguments):
    """Write a timeline of a run's processes for ui.perfetto.dev or chrome://tracing.

    Example: longshore trace demo-1 --steps 4-6
    """

    run: RunPath
    start_s: Annotated[float | None, option("S"), Field(ge=0)] = None
    """Start, in seconds since the run began; default: the beginning."""
    end_s: Annotated[float | None, option("S"), Field(ge=0)] = None
    """End, in seconds since the run began; default: the last event."""
    steps: Annotated[tuple[int, int] | None, one_word("N|N-M"), option(), BeforeValidator(_parse_steps)] = None
    """Range of optimizer steps."""
    output: Annotated[Path | None, option("FILE")] = None
    """File to write; default: RUN.trace.json in the current folder."""
    as_json: JsonFlag = False


def run(given: TraceArguments, out: JsonOutput) -> None:
    """Read the run, cut out the window and write the file."""
    load_stored_tables(given.run)
    timeline = read_run_timeline(given.run)
    window = _window(timeline, given)
    pieces = window.clip(timeline.trace_events())
    if not pieces:
        raise UserError("nothing of the run lies between --start-s and --end-s: widen them")
    path = given.output or Path(f"{given.run.absolute().name}.trace.json")
    about = {"run": given.run.absolute().name, "began_unix_s": window.begin_s}
    try:
        replace_file(path, orjson.dumps(build_trace_file(pieces, window.begin_s, about)))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; name another file with --output") from error
    tracks = sorted({piece.track for piece in pieces})
    processes = sorted({track.process for track in tracks})
    seconds = window.end_s - window.begin_s
    out.set_result({"path": str(path), "seconds": round(seconds, 3), "events": len(pieces), "tracks": processes})
    output_console().print(
        f"{display_path(path.absolute())}: {seconds:,.1f} s of {', '.join(processes)}; open it at "
        "https://ui.perfetto.dev (it stays in your browser) or in chrome://tracing"
    )


def _window(timeline: RunTimeline, given: TraceArguments) -> TimeWindow:
    """Raises UserError where there is nothing between its ends."""
    zero_s = timeline.begin_s or 0.0
    if given.steps is not None:
        if given.start_s is not None or given.end_s is not None:
            raise UserError("--steps says from when to when, as --start-s and --end-s do: leave one of them out")
        return _window_of_steps(timeline, *given.steps)
    begin_s = zero_s + (given.start_s or 0.0)
    end_s = timeline.end_s if given.end_s is None else zero_s + given.end_s
    if begin_s >= end_s:
        raise UserError(f"the window is empty: the run has {timeline.end_s - zero_s:,.1f} s; give a smaller --start-s")
    return TimeWindow(begin_s, end_s)


def _window_of_steps(timeline: RunTimeline, first: int, last: int) -> TimeWindow:
    known = timeline.steps
    if not known:
        raise UserError("the run has taken no step yet: use --start-s and --end-s")
    if first not in known or last not in known or first > last:
        raise UserError(f"--steps {first}-{last}: the run has taken the steps {min(known)} to {max(known)}")
    before = known[first - 1][1] if first - 1 in known else known[first][0]
    return TimeWindow(min(before, known[first][0]), known[last][1])


COMMAND = Command("trace", TraceArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
