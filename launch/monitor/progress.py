"""Shows a run's progress in the terminal that started it: a live panel, or one line per step without a terminal.

It reads the run directory in a thread like every other reader, so it can neither slow nor stop the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from threading import Lock
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from launch.monitor.run_state.event_text import RUN_FLOWS, LogLine
from launch.monitor.run_state.model import EvaluationScore
from launch.monitor.run_state.store import RunStore
from launch.monitor.run_state.view import RunView
from launch.monitor.text_plots import TICKS, sparkline
from protocol.cli.formatting import (
    format_decimal,
    format_milliseconds,
    format_percent,
    format_score,
    format_stderr,
    humanize_name,
)
from protocol.run_directory.run_status import RunStatus
from protocol.trajectory import is_training_trajectory

_log = logging.getLogger(__name__)
POLL_S = 0.5
_ACCENT = "cyan"
_PHASE_LINES = 5
"""Number of lines for a phase without optimizer steps, without a terminal."""
_STEP_METRICS = ("reward_mean", "pass_rate", "tokens_per_s_sampled", "staleness_mean", "staleness_max")
_SHOWN_ONLINE_EVALUATIONS, _OFFLINE_EVALUATIONS = 3, {"before", "after"}
"""Number of online evaluations in the panel, and the names of the evaluations before and after training."""


async def show_progress(store: RunStore, console: Console) -> None:
    """Show the run until it is finished or this is cancelled; the state until then is shown before it ends.

    Errors of the display are logged and never raised.  No other reader may use ``store``.  Other output on the same
    ``console`` appears above the panel.
    """
    try:
        await _show(store, console)
    except Exception:  # noqa: BLE001  a display must not end a run
        _log.warning("the progress display ended; the run goes on", exc_info=True)


async def _show(store: RunStore, console: Console) -> None:
    if console.is_terminal:
        console.soft_wrap = False  # the panel has the terminal's width
        with Live(console=console, auto_refresh=False) as live:
            await _follow(store, lambda view: live.update(render_panel(view), refresh=True))
    else:
        log = ProgressLog()
        await _follow(store, lambda view: _write(log.new_lines(view), console.file))


async def _follow(store: RunStore, show: Callable[[RunView], None]) -> None:
    one_at_a_time = Lock()  # a cancelled wait leaves its thread running

    def poll() -> RunView:
        with one_at_a_time:
            store.poll()
            return store.view()

    try:
        while True:
            view = await asyncio.to_thread(poll)
            show(view)
            if view.status is not RunStatus.RUNNING:
                return
            await asyncio.sleep(POLL_S)
    except asyncio.CancelledError:
        show(poll())
        raise


def _write(lines: list[str], stream: IO[str]) -> None:
    stream.writelines(line + "\n" for line in lines)
    stream.flush()


class ProgressLog:
    """Lines of progress that are new.  Earlier starts of the run printed their own lines."""

    def __init__(self) -> None:
        self._phases = 0.0
        self._part = (0.0, 0)
        """Start of the last printed phase, and the number of fifths of it that were done."""
        self._step = 0
        self._ended = False
        self._images = -1
        """Number of fifths of the tasks' images that were ready at the last line about them."""
        self._evaluations: set[str] = set()
        self._notices: set[tuple[float, str]] = set()

    def new_lines(self, view: RunView) -> list[str]:
        """Return lines for what is new: the page's address, phases, images, steps, evaluations, problems, an early
        end."""
        lines: list[str] = []
        since = view.run.last_start_at
        if self._phases == 0.0 and view.phases and view.run.url:
            lines.append(f"live monitor: {view.run.url}")
        timed: list[tuple[float, str]] = []
        ended = [each for each in view.evaluations if each.at >= since and each.name not in self._evaluations]
        if (part := self._new_part(view)) is not None:
            timed.append((min([view.last_event_at or 0.0, *(each.at for each in ended)]), part))
        for found in ended:
            self._evaluations.add(found.name)
            score = f"pass@1 {format_score(found.pass_at_1, found.stderr)} ({found.n} episodes)"
            timed.append((found.at, f"evaluation {found.name}: {score}"))
        for span in view.phases:
            if span.since > self._phases:
                self._phases = span.since
                detail = f": {span.detail}" if span.detail else ""
                timed.append((span.since, f"{humanize_name(span.name)}{detail}"))
        if (images := self._new_images(view)) is not None:
            timed.append((view.last_event_at or 0.0, images))
        if view.step > self._step and (t := view.latest.get("t", 0.0)) > since:
            timed += [(t, line) for line in (*format_missed_steps(view, self._step), format_step_line(view))]
        self._step = view.step
        notices = {
            (line.t, line.text)
            for line in view.log
            if line.t >= since and line.level in {"warn", "bad"} and not _counted(line)
        }
        timed += sorted(notices - self._notices)
        self._notices = notices
        lines += [line for _, line in sorted(timed, key=itemgetter(0))]
        if view.status is not RunStatus.RUNNING and not self._ended:
            self._ended = True
            lines.append(f"{view.status}: {view.run.reason}" if view.run.reason else view.status.value)
        return lines

    def _new_images(self, view: RunView) -> str | None:
        """Return a line for another fifth of the tasks whose images are ready or have failed."""
        counts = view.images
        if counts is None or (fifths := _PHASE_LINES * (counts.ready + counts.failed) // counts.tasks) == self._images:
            return None
        self._images = fifths
        return str(counts)

    def _new_part(self, view: RunView) -> str | None:
        """Return a line for another fifth of a phase without optimizer steps."""
        span = view.phases[-1] if view.phases else None
        if span is None or not span.total or span.name == "training":
            return None
        fifths = int(_PHASE_LINES * span.done / span.total)
        printed = self._part[1] if self._part[0] == span.since else 0
        if not printed < fifths:
            return None
        self._part = (span.since, fifths)
        return f"{humanize_name(span.name)}: {span.done:.0f} of {span.total:.0f}"


def _counted(line: LogLine) -> bool:
    """Return whether the lines of steps or the last line report this already."""
    return line.kind == "run.finished" or (line.kind == "episode.failed" and is_training_trajectory(line.trajectory))


def format_missed_steps(view: RunView, last: int) -> list[str]:
    """Return a line of metrics for each step between the ``last`` printed one and the newest."""
    columns = [view.curves[name] for name in _STEP_METRICS]
    steps = [int(step) for step in view.curves["step"] if step is not None]
    rows = zip(steps, zip(*columns, strict=True), strict=True)
    return [
        " · ".join(_measured(view, step, dict(zip(_STEP_METRICS, row, strict=True))))
        for step, row in rows
        if last < step < view.step
    ]


def _measured(view: RunView, step: int, values: Mapping[str, float | None]) -> list[str]:
    of = f"/{view.run.steps}" if view.run.steps else ""
    return [
        f"step {step}{of}",
        f"reward {format_decimal(values.get('reward_mean'), 3)}",
        f"pass {format_decimal(values.get('pass_rate'), 2)}",
        f"{format_decimal(values.get('tokens_per_s_sampled'), 0)} tokens/s",
        f"staleness {_staleness(view, values)}",
    ]


def format_step_line(view: RunView) -> str:
    """Return a line for the newest step, with totals of the run."""
    facts = [
        *_measured(view, view.step, view.latest),
        f"pause {_pause(view)}",
        f"sandboxes {view.sandboxes.live}",
        f"tokens trained {view.tokens.trained:,}, masked {view.tokens.masked:,}",
        f"episodes dropped {_dropped(view):,}",
    ]
    if failed := sum(view.totals.failed.values()):
        facts.append(f"infra failures {failed}")
    return " · ".join(facts)


def render_panel(view: RunView) -> RenderableType:
    """Return the live panel."""
    facts = Table.grid(padding=(0, 3), expand=True)
    for _ in range(4):
        facts.add_column(ratio=1)
    latest = view.latest
    facts.add_row(
        _fact("reward", format_decimal(latest.get("reward_mean"), 2), _trend(view, "reward_mean")),
        _fact("pass rate", format_percent(latest.get("pass_rate")), _trend(view, "pass_rate")),
        _fact("tokens/s", format_decimal(latest.get("tokens_per_s_sampled"), 0), _trend(view, "tokens_per_s_sampled")),
        _fact("staleness", _staleness(view, view.latest), ""),
    )
    facts.add_row(
        _fact("engine pause", _pause(view), ""),
        _fact("sandboxes live", str(view.sandboxes.live), _sandbox_note(view)),
        _fact("tokens trained", f"{view.tokens.trained:,}", f"{view.tokens.masked:,} masked"),
        _fact("episodes dropped", f"{_dropped(view):,}", f"{view.totals.acknowledged:,} acknowledged"),
    )
    parts: list[RenderableType] = [_phase_row(view), Text(), facts]
    for found in _shown(view.evaluations):
        score = f"[b]{format_percent(found.pass_at_1)}[/]{format_stderr(found.stderr)}"
        parts.append(Text.from_markup(f"[dim]{escape(found.name)}[/]  pass@1 {score}"))
    problems = (
        line for line in reversed(view.log) if line.level in {"bad", "warn"} and line.t >= view.run.last_start_at
    )
    if (last := next(problems, None)) is not None:
        parts.append(
            Text(last.text, style="red" if last.level == "bad" else "yellow", no_wrap=True, overflow="ellipsis")
        )
    title = Text.assemble(("longshore ", f"bold {_ACCENT}"), (view.run.id, "bold"))
    return Panel(
        Group(*parts), title=title, title_align="left", subtitle=view.run.url or None, subtitle_align="left",
        border_style="bright_black", padding=(1, 2), width=108,
    )  # fmt: skip


def _shown(evaluations: Sequence[EvaluationScore]) -> list[EvaluationScore]:
    """Return the evaluations without all but the last few online ones."""
    online = [found for found in evaluations if found.name not in _OFFLINE_EVALUATIONS]
    left_out = {found.name for found in online[:-_SHOWN_ONLINE_EVALUATIONS]}
    return [found for found in evaluations if found.name not in left_out]


def _phase_row(view: RunView) -> RenderableType:
    row = Table.grid(padding=(0, 2), expand=True)
    row.add_column(no_wrap=True)
    row.add_column(ratio=1)
    row.add_column(no_wrap=True, justify="right")
    span = view.phases[-1] if view.phases else None
    if span is None:
        row.add_row(Text("waiting for the first event", style="dim"), "", "")
        return row
    running = view.status is RunStatus.RUNNING
    name = humanize_name(span.name) if running else view.status.value
    if running and view.run.flow != "run":
        name += f", {RUN_FLOWS.get(view.run.flow, view.run.flow)}"
    style = "red" if view.status is RunStatus.STOPPED else _ACCENT
    bar = (
        ProgressBar(total=span.total, completed=span.done, complete_style=style)
        if span.total
        else Text(span.detail, "dim")
    )
    progress = f"{span.done:.0f} / {span.total:.0f}" if span.total else ""
    row.add_row(Text(name, style=f"bold {style}"), bar, progress)
    return row


def _fact(label: str, value: str, extra: str) -> Text:
    return Text.assemble(
        (label + "\n", "dim"), (value, "bold"), ("  " + extra, "dim" if extra[:1] not in TICKS else _ACCENT), "\n"
    )


def _sandbox_note(view: RunView) -> str:
    images = view.images
    if images is not None and images.pending:
        return f"images {images.ready} of {images.tasks}"
    return f"{view.sandboxes.waiting} waiting"


def _trend(view: RunView, name: str) -> str:
    return sparkline(view.curves.get(name, []), 12)


def _staleness(view: RunView, values: Mapping[str, float | None]) -> str:
    bound = "" if view.run.max_staleness is None else f" of {view.run.max_staleness:.0f}"
    mean, oldest = format_decimal(values.get("staleness_mean"), 1), format_decimal(values.get("staleness_max"), 0)
    return f"{mean}, oldest {oldest}{bound}"


def _pause(view: RunView) -> str:
    if view.blocked_share is not None:
        return f"offloaded {format_percent(view.blocked_share)} of the time"
    pauses = [engine.pause_ms for engine in view.engines if engine.pause_ms is not None]
    return format_milliseconds(max(pauses, default=None))


def _dropped(view: RunView) -> int:
    return sum(view.totals.dropped.values())
