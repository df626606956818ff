"""Draws the panels of the overview from a view of the run.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from launch.monitor.run_state.model import EpisodeProgress, EvaluationScore
from launch.monitor.run_state.view import EngineSummary, RunView
from launch.monitor.text_plots import TICKS, braille_curve, sparkline
from launch.monitor.tui.drawing import styles
from launch.monitor.tui.drawing.styles import ACCENT, BAD, GOOD, QUIET, WARN
from protocol.cli import formatting


@dataclass(frozen=True, slots=True)
class OverviewMetric:
    name: str
    title: str
    share: bool = False
    """Whether values are shares, shown as percentages."""


MAIN_METRICS = (
    OverviewMetric("reward_mean", "reward"),
    OverviewMetric("pass_rate", "pass rate", share=True),
    OverviewMetric("loss", "loss"),
    OverviewMetric("entropy", "entropy"),
    OverviewMetric("kl_k3", "KL"),
    OverviewMetric("clip_high", "clipped above", share=True),
    OverviewMetric("staleness_mean", "staleness"),
    OverviewMetric("trained_share", "trained share", share=True),
    OverviewMetric("tokens_per_s_sampled", "tokens/s"),
    OverviewMetric("step_s", "step, s"),
    OverviewMetric("wait_s", "batch wait, s"),
    OverviewMetric("pause_ms", "engine pause, ms"),
)
_FIGURE_WIDTH = 22
"""Minimum columns of a figure."""
_SPACIOUS_WIDTH = 100
"""Number of columns from which rows of figures are separated by blank lines."""
_PLOT_WIDTH, _PLOT_HEIGHT = 36, 2
_LABEL = 12
_SHOWN_SESSIONS, _SHOWN_ALERTS = 6, 6


def render_facts(view: RunView, width: int) -> Text:
    """Return the headline figures in as many columns as fit."""
    oldest = formatting.format_decimal(view.latest.get("staleness_max"), 0)
    staleness = f"{formatting.format_decimal(view.latest.get('staleness_mean'), 1)}, oldest {oldest}"
    bound = "" if view.run.max_staleness is None else f"of {view.run.max_staleness:.0f}"
    pauses = [engine.pause_ms for engine in view.engines if engine.pause_ms is not None]
    dropped, failed = sum(view.totals.dropped.values()), sum(view.totals.failed.values())
    cells = [
        _figure("reward", formatting.format_decimal(view.latest.get("reward_mean")), _trend(view, "reward_mean")),
        _figure("pass rate", formatting.format_percent(view.latest.get("pass_rate")), _trend(view, "pass_rate")),
        _figure(
            "tokens/s",
            formatting.format_short(view.latest.get("tokens_per_s_sampled")),
            _trend(view, "tokens_per_s_sampled"),
        ),
        _figure("staleness", staleness, bound),
        _figure("episodes running", f"{view.running_count}", f"{view.totals.finished:,} finished"),
        _figure("tokens trained", f"{view.tokens.trained:,}", f"{view.tokens.masked:,} masked"),
        _figure("engine pause", formatting.format_milliseconds(max(pauses, default=None)), "longest"),
        _figure("sandboxes", f"{view.sandboxes.live}", f"{view.sandboxes.waiting} waiting"),
        *_images(view),
        _figure("trajectories", f"{view.totals.acknowledged:,}", f"{dropped:,} dropped"),
        _figure("infra failures", f"{failed:,}", f"{view.totals.deaths:,} deaths", BAD if failed else ""),
    ]
    return arrange_blocks(cells, width, _FIGURE_WIDTH, spaced=width >= _SPACIOUS_WIDTH)


def _images(view: RunView) -> list[list[Text]]:
    """Return the figure of the tasks' images, as long as some are missing."""
    counts = view.images
    if counts is None or not counts.pending:
        return []
    return [_figure("images ready", f"{counts.ready}", f"of {counts.tasks}", BAD if counts.failed else "")]


def _figure(label: str, value: str, extra: str, style: str = "") -> list[Text]:
    extra_style = ACCENT if extra[:1] in TICKS else QUIET
    return [Text(label, QUIET), Text.assemble((value, f"bold {style}".strip()), "  ", (extra, extra_style))]


def _trend(view: RunView, name: str) -> str:
    return sparkline(view.curves.get(name, []), 10)


def arrange_blocks(cells: Sequence[Sequence[Text]], width: int, min_width: int, *, spaced: bool = True) -> Text:
    """Arrange blocks of equal height in rows, each block at least ``min_width`` wide; ``spaced`` adds blank lines."""
    count = min(len(cells), max(1, width // min_width)) if cells else 1
    room = max(1, width // count)
    lines: list[Text] = []
    for first in range(0, len(cells), count):
        row = cells[first : first + count]
        lines += [Text.assemble(*(_fitted(part, room) for part in line)) for line in zip(*row, strict=True)]
        if spaced and first + count < len(cells):
            lines.append(Text())
    return Text("\n").join(lines)


def _fitted(text: Text, width: int) -> Text:
    shown = text.copy()
    shown.truncate(width - 1, overflow="ellipsis", pad=True)
    return shown.append(" ")


def render_alerts(view: RunView) -> Text:
    """Return the open alerts, health alerts first."""
    if not view.alerts:
        return Text("No open alerts.", QUIET)
    shown = view.alerts[:_SHOWN_ALERTS]
    lines = [
        Text.assemble(("■ " if each.health else "□ ", BAD if each.health else WARN), formatting.one_line(each.text))
        for each in shown
    ]
    if more := len(view.alerts) - len(shown):
        lines.append(Text(f"and {more} more, in the log", QUIET))
    return Text("\n").join(lines)


def render_curves(view: RunView, width: int) -> Text:
    """Return curves of the main metrics that the run has."""
    steps = view.curves["step"]
    if not steps:
        return Text("No optimizer step yet.", QUIET)
    known = [metric for metric in MAIN_METRICS if any(each is not None for each in view.curves.get(metric.name, []))]
    count = max(1, width // _PLOT_WIDTH)
    room = max(12, width // count - 3)
    return arrange_blocks([render_metric(metric, view.curves[metric.name], room) for metric in known], width, room + 3)


def render_metric(metric: OverviewMetric, values: Sequence[float | None], width: int) -> list[Text]:
    """Return the title with the last value and the range, and the curve."""
    format_value = formatting.format_percent if metric.share else formatting.format_short
    known = [value for value in values if value is not None]
    bounds = f"{format_value(min(known))} … {format_value(max(known))}" if known else ""
    title = Text.assemble((metric.title, QUIET), "  ", (format_value(known[-1] if known else None), "bold"))
    title.truncate(max(1, width - len(bounds) - 1), pad=True)
    return [
        title.append(f" {bounds}", QUIET),
        *(Text(line, ACCENT) for line in braille_curve(values, width, _PLOT_HEIGHT)),
    ]


def render_engines(view: RunView) -> Text:
    if not view.engines:
        return Text("No engine has started yet.", QUIET)
    return Text("\n").join(map(_engine, view.engines))


def _engine(engine: EngineSummary) -> Text:
    parts: list[str | Text | tuple[str, str]] = [
        _label(engine.name),
        styles.render_state(engine.state),
        (f"  v{engine.version or formatting.MISSING}", ""),
        (f"  {engine.loads} loads, {formatting.format_milliseconds(engine.pause_ms)}", QUIET),
    ]
    if engine.restarts:
        parts.append((f"  {engine.restarts} restarts", WARN))
    return Text.assemble(*parts)


def render_evaluations(view: RunView) -> Text:
    """Return the finished evaluations and the running ones."""
    lines = [_evaluation(each) for each in view.evaluations]
    lines += [
        Text.assemble(_label(name), f"{each.done} of {each.total}", (f"  {each.passed} passed", QUIET))
        for name, each in view.evaluating.items()
    ]
    return Text("\n").join(lines) if lines else Text("None yet.", QUIET)


def _evaluation(each: EvaluationScore) -> Text:
    spread = formatting.format_stderr(each.stderr)
    return Text.assemble(
        _label(each.name), (formatting.format_percent(each.pass_at_1), GOOD), (f"{spread}  of {each.n}", QUIET)
    )


def _label(name: str) -> tuple[str, str]:
    return f"{formatting.truncate_text(name, _LABEL):<{_LABEL}} ", "bold"


def render_episodes(view: RunView, width: int) -> Text:
    """Return the longest running episodes, as of the newest event."""
    if not view.running:
        return Text("No episode is running.", QUIET)
    longest = sorted(view.running, key=lambda each: each.started_at)[:_SHOWN_SESSIONS]
    lines = [_session(each, width, view.last_event_at or 0.0) for each in longest]
    if more := view.running_count - len(longest):
        lines.append(Text(f"and {more} more; press 4 for their terminals", QUIET))
    return Text("\n").join(lines)


def _session(session: EpisodeProgress, width: int, now: float) -> Text:
    age = formatting.format_duration(max(0.0, now - session.started_at)) if session.started_at else formatting.MISSING
    line = Text.assemble(
        (f"{formatting.truncate_text(session.task, 18):<18} ", "bold"), f"{session.worker:<11} ",
        f"turn {session.turn:<3}",
        (f"{age:>8}  ", QUIET), (formatting.one_line(session.command or session.tool), ACCENT),
    )  # fmt: skip
    line.truncate(max(10, width), overflow="ellipsis")
    return line
