"""Compares runs: their curves over the same steps, a table of each figure, and the keys in which they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean

from launch.config.loader import Toml, flatten_tables
from launch.pages.charts import MAX_SERIES, Chart, Series, render_chart_page
from launch.pages.html_document import PageHeader, PageSection, html_section, html_table
from launch.run_records.metrics_log import read_metrics
from launch.run_records.stored_config import load_stored_tables
from launch.runs.run_list import RUN_COLUMNS, RunListRow, format_run_row, read_run_row
from protocol.errors import UserError
from protocol.run_directory.layout import CONFIG_FILE, NoSuchRunError

MAX_RUNS = MAX_SERIES
"""The largest number of runs in one comparison: each has a colour of its own."""
_MAX_POINTS = 400
_LAST = 0.25
"""The share of a run's newest steps whose mean stands for its end."""

MetricFunction = Callable[[Mapping[str, float]], float | None]


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    title: str
    note: str
    metric: MetricFunction
    share: bool = False
    from_zero: bool = True


def _named(name: str) -> MetricFunction:
    return lambda step: step.get(name)


def _clipped(step: Mapping[str, float]) -> float | None:
    return step["clip_high"] + step["clip_low"] if {"clip_high", "clip_low"} <= step.keys() else None


def _idle(step: Mapping[str, float]) -> float | None:
    total = step.get("wait_s", 0.0) + step.get("step_s", 0.0)
    return step.get("wait_s", 0.0) / total if total else None


COMPARED_METRICS = (
    ComparedMetric("Reward", "mean over the trajectories of each step", _named("reward_mean"), from_zero=False),
    ComparedMetric("Pass rate", "all tests passed, of the training episodes", _named("pass_rate"), share=True),
    ComparedMetric("Entropy", "of the policy, a token", _named("entropy")),
    ComparedMetric("Clipped", "share of the tokens", _clipped, share=True),
    ComparedMetric("Token staleness", "mean, in optimizer steps", _named("staleness_mean")),
    ComparedMetric(
        "Trained share", "tokens with loss ÷ sampled tokens", _named("trained_share"), share=True, from_zero=False
    ),
    ComparedMetric("Mismatch", "k3 between engine and learner", _named("kl_k3")),
    ComparedMetric("Gradient norm", "before it is clipped", _named("grad_norm")),
    ComparedMetric("Tokens a second", "sampled by the engines", _named("tokens_per_s_sampled")),
    ComparedMetric("Idle learner", "share of the time that it waits for a batch", _idle, share=True),
)


@dataclass(frozen=True, slots=True)
class ComparedRun:
    row: RunListRow
    steps: Sequence[Mapping[str, float]]
    config: Mapping[str, Toml]
    """``section.key`` → value."""


def read_compared_runs(paths: Sequence[Path], now: float) -> list[ComparedRun]:
    """Read the runs to compare.  Raises UserError for a path that is no run, fewer than two runs, or too many."""
    if not 2 <= len(paths) <= MAX_RUNS:
        raise UserError(f"compare takes 2 to {MAX_RUNS} runs, and there are {len(paths)}")
    return [_read(path, now) for path in paths]


def _read(path: Path, now: float) -> ComparedRun:
    if not (path / CONFIG_FILE).is_file():
        raise NoSuchRunError(path)
    return ComparedRun(read_run_row(path, now), read_metrics(path), flatten_tables(load_stored_tables(path)))


@dataclass(frozen=True, slots=True)
class MetricComparisonRow:
    """One metric of one run."""

    figure: str
    run: str
    first: float | None
    last: float | None
    end: float | None
    """The mean over the last quarter of its steps."""


def compare_metrics(compared: Sequence[ComparedRun]) -> list[MetricComparisonRow]:
    return [_figure_line(figure, run) for figure in COMPARED_METRICS for run in compared]


def _figure_line(figure: ComparedMetric, run: ComparedRun) -> MetricComparisonRow:
    values = [value for step in run.steps if (value := figure.metric(step)) is not None]
    newest = values[-max(1, round(_LAST * len(values))) :]
    if not values:
        return MetricComparisonRow(figure.title, run.row.run, None, None, None)
    return MetricComparisonRow(figure.title, run.row.run, values[0], values[-1], round(fmean(newest), 6))


def find_config_differences(compared: Sequence[ComparedRun]) -> list[tuple[str, tuple[Toml | None, ...]]]:
    """Return key → its value in each run, for the keys that differ."""
    keys = sorted({key for run in compared for key in run.config})
    found = [(key, tuple(run.config.get(key) for run in compared)) for key in keys]
    return [(key, values) for key, values in found if any(value != values[0] for value in values)]


def build_charts(compared: Sequence[ComparedRun]) -> list[Chart]:
    """Return charts over all steps of all runs, thinned evenly; metrics that no run has are left out."""
    steps = sorted({int(step["step"]) for run in compared for step in run.steps})
    steps = steps[:: max(1, -(-len(steps) // _MAX_POINTS))]
    found: list[Chart] = []
    for figure in COMPARED_METRICS:
        series = [Series(run.row.run, _values(figure, run, steps)) for run in compared]
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


def _values(figure: ComparedMetric, run: ComparedRun, steps: Sequence[int]) -> list[float | None]:
    by_step = {int(step["step"]): figure.metric(step) for step in run.steps}
    return [by_step.get(step) for step in steps]


def render_run_comparison(compared: Sequence[ComparedRun]) -> str:
    """Return the comparison as HTML that needs no network."""
    names = [run.row.run for run in compared]
    charts = build_charts(compared)
    differences = [
        (key, *("–" if value is None else str(value) for value in values))
        for key, values in find_config_differences(compared)
    ]
    facts = "".join(f"<span>{escape(name)}</span>" for name in names)
    return render_chart_page(
        PageHeader(" and ".join(names), "comparison", facts, f"{len(names)} runs"),
        charts,
        above=[
            html_section(PageSection("Runs", html_table(RUN_COLUMNS, [format_run_row(run.row) for run in compared]))),
            *([] if charts else ['<p class="none">None of them has taken a step.</p>']),
        ],
        below=[
            html_section(PageSection("Metrics", html_table(METRIC_COLUMNS, format_metric_rows(compared)))),
            html_section(PageSection("Configuration", html_table(("key", *names), differences))),
        ],
    )


METRIC_COLUMNS = ("figure", "run", "first", "last", "last quarter")


def format_metric_rows(compared: Sequence[ComparedRun]) -> list[tuple[str, ...]]:
    return [
        (
            each.figure,
            each.run,
            *("–" if value is None else f"{value:.4g}" for value in (each.first, each.last, each.end)),
        )
        for each in compare_metrics(compared)
    ]
