"""Runs side by side: their curves over the same steps, a table of each figure, and the keys in which they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean

from launch.config.load import Toml
from launch.metrics import read_metrics
from launch.monitor.html import Head, Section, document, page_section, table
from launch.rundir import NoSuchRunError, stored_values
from launch.runs.listing import HEAD as LINE_HEAD
from launch.runs.listing import RunLine, cells, run_line
from launch.simulate.plot.chart import COLOURS, HEIGHT, WIDTH, Chart, Series, draw
from launch.simulate.plot.svg import SvgCanvas
from protocol.errors import UserError

MOST = len(COLOURS)
"""Runs in one comparison: each has a colour of its own."""
_MOST_PLACES = 400
_LAST = 0.25
"""Share of a run's steps, the newest, whose mean stands for its end."""
_STYLE = """
.report main { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 18px; padding-bottom: 40px; }
.report main > .whole { grid-column: 1 / -1; }
.report .chart svg { width: 100%; height: auto; display: block; font-family: var(--sans); }
@media (max-width: 860px) { .report main { grid-template-columns: minmax(0, 1fr); } }
"""

Metric = Callable[[Mapping[str, float]], float | None]


@dataclass(frozen=True, slots=True)
class Figure:
    title: str
    note: str
    metric: Metric
    share: bool = False
    from_zero: bool = True


def _named(name: str) -> Metric:
    return lambda step: step.get(name)


def _clipped(step: Mapping[str, float]) -> float | None:
    return step["clip_high"] + step["clip_low"] if {"clip_high", "clip_low"} <= step.keys() else None


def _idle(step: Mapping[str, float]) -> float | None:
    total = step.get("wait_s", 0.0) + step.get("step_s", 0.0)
    return step.get("wait_s", 0.0) / total if total else None


FIGURES = (
    Figure("Reward", "mean over the trajectories of each step", _named("reward_mean"), from_zero=False),
    Figure("Pass rate", "all tests passed, of the training episodes", _named("pass_rate"), share=True),
    Figure("Entropy", "of the policy, a token", _named("entropy")),
    Figure("Clipped", "share of the tokens", _clipped, share=True),
    Figure("Token age", "mean, in optimizer steps", _named("age_mean")),
    Figure("Trained share", "tokens with loss ÷ sampled tokens", _named("trained_share"), share=True, from_zero=False),
    Figure("Mismatch", "k3 between engine and learner", _named("kl_k3")),
    Figure("Gradient norm", "before it is clipped", _named("grad_norm")),
    Figure("Tokens a second", "sampled by the engines", _named("tokens_per_s_sampled")),
    Figure("Idle learner", "share of the time that it waits for a batch", _idle, share=True),
)


@dataclass(frozen=True, slots=True)
class Compared:
    line: RunLine
    steps: Sequence[Mapping[str, float]]
    config: Mapping[str, Toml]
    """``section.key`` → value."""


def read_runs(paths: Sequence[Path], now: float) -> list[Compared]:
    """Raises UserError for what is no run, for fewer than two, and for more than there are colours."""
    if not 2 <= len(paths) <= MOST:
        raise UserError(f"compare takes 2 to {MOST} runs, and there are {len(paths)}")
    return [_read(path, now) for path in paths]


def _read(path: Path, now: float) -> Compared:
    if not path.is_dir():
        raise NoSuchRunError(path)
    tables = stored_values(path)
    config = {f"{section}.{key}": value for section, keys in tables.items() for key, value in keys.items()}
    return Compared(run_line(path, now), read_metrics(path), config)


@dataclass(frozen=True, slots=True)
class FigureLine:
    """One figure of one run."""

    figure: str
    run: str
    first: float | None
    last: float | None
    end: float | None
    """Mean over the last quarter of its steps."""


def figure_lines(compared: Sequence[Compared]) -> list[FigureLine]:
    return [_figure_line(figure, run) for figure in FIGURES for run in compared]


def _figure_line(figure: Figure, run: Compared) -> FigureLine:
    values = [value for step in run.steps if (value := figure.metric(step)) is not None]
    newest = values[-max(1, round(_LAST * len(values))) :]
    if not values:
        return FigureLine(figure.title, run.line.run, None, None, None)
    return FigureLine(figure.title, run.line.run, values[0], values[-1], round(fmean(newest), 6))


def differences(compared: Sequence[Compared]) -> list[tuple[str, tuple[Toml | None, ...]]]:
    """Key → its value in each run, of the keys that are not the same in all."""
    keys = sorted({key for run in compared for key in run.config})
    found = [(key, tuple(run.config.get(key) for run in compared)) for key in keys]
    return [(key, values) for key, values in found if any(value != values[0] for value in values)]


def charts(compared: Sequence[Compared]) -> list[Chart]:
    """Over every step that any of them took, thinned evenly; a figure that none of them has is left out."""
    steps = sorted({int(step["step"]) for run in compared for step in run.steps})
    steps = steps[:: max(1, -(-len(steps) // _MOST_PLACES))]
    found: list[Chart] = []
    for figure in FIGURES:
        series = [Series(run.line.run, _values(figure, run, steps)) for run in compared]
        if any(value is not None for line in series for value in line.values):
            found.append(
                Chart(
                    figure.title,
                    figure.note,
                    [str(step) for step in steps],
                    "optimizer step",
                    series,
                    share=figure.share,
                    from_zero=figure.from_zero,
                )
            )
    return found


def _values(figure: Figure, run: Compared, steps: Sequence[int]) -> list[float | None]:
    by_step = {int(step["step"]): figure.metric(step) for step in run.steps}
    return [by_step.get(step) for step in steps]


def page(compared: Sequence[Compared]) -> str:
    """HTML that needs no network."""
    names = [run.line.run for run in compared]
    lines = table(LINE_HEAD, [cells(run.line) for run in compared])
    drawn = "".join(f'<section class="panel chart">{_svg(chart)}</section>' for chart in charts(compared))
    other = [
        (key, *("–" if value is None else str(value) for value in values)) for key, values in differences(compared)
    ]
    body = "\n".join([
        f'<div class="whole">{page_section(Section("Runs", lines))}</div>',
        drawn or '<p class="none whole">None of them has taken a step.</p>',
        f'<div class="whole">{page_section(Section("Figures", table(FIGURE_HEAD, figure_cells(compared))))}</div>',
        f'<div class="whole">{page_section(Section("Configuration", table(("key", *names), other)))}</div>',
    ])  # fmt: skip
    facts = "".join(f"<span>{escape(name)}</span>" for name in names)
    return document(Head(" and ".join(names), "comparison", facts, f"{len(names)} runs"), body, style=_STYLE)


FIGURE_HEAD = ("figure", "run", "first", "last", "last quarter")


def figure_cells(compared: Sequence[Compared]) -> list[tuple[str, ...]]:
    return [
        (
            each.figure,
            each.run,
            *("–" if value is None else f"{value:.4g}" for value in (each.first, each.last, each.end)),
        )
        for each in figure_lines(compared)
    ]


def _svg(chart: Chart) -> str:
    canvas = SvgCanvas(WIDTH, HEIGHT, chart.title)
    draw(chart, canvas)
    return canvas.element()
