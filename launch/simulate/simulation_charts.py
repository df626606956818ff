"""Builds the charts of one simulation."""

from __future__ import annotations

from collections.abc import Sequence

from launch.pages.charts import Chart, ReferenceLine, Series
from launch.simulate.simulation_rows import SimulationRow, best_rows, group_by_label


def build_charts(rows: Sequence[SimulationRow]) -> list[Chart]:
    best = best_rows(rows)
    faults = [_each_fault(best), _all_faults(best)] if any(row.result.faults for row in best.values()) else []
    return [_rate(rows), _deciles(best), _staleness(best), _idle(best), _queues(best), _dropped(best), *faults]


def _rate(rows: Sequence[SimulationRow]) -> Chart:
    places = sorted({row.cell.in_flight for row in rows})
    series = [
        Series(
            name, [next((r.trained_tokens_per_s for r in line if r.cell.in_flight == place), None) for place in places]
        )
        for name, line in group_by_label(rows).items()
    ]
    references = [
        ReferenceLine("unbounded async", rows[0].unbounded_tokens_per_s),
        ReferenceLine("sync", rows[0].sync_tokens_per_s),
    ]
    return Chart(
        "Trained tokens a second",
        "against the best synchronous and the best unbounded run",
        [f"{place:,}" for place in places],
        "episodes in flight",
        series,
        references if len({row.cell.nodes for row in rows}) == 1 else (),
    )


def _deciles(best: dict[str, SimulationRow]) -> Chart:
    return Chart(
        "Trained share by length",
        "tokens with loss ÷ sampled tokens, by tenth of the trajectories' lengths",
        [str(tenth) for tenth in range(1, 11)],
        "tenth by sampled tokens, shortest first",
        [Series(name, row.result.account.trained_share_by_decile()) for name, row in best.items()],
        share=True,
        from_zero=False,
    )


def _staleness(best: dict[str, SimulationRow]) -> Chart:
    staleness = {name: row.result.account.tokens_by_staleness() for name, row in best.items()}
    places = max(map(len, staleness.values()))
    series = [
        Series(name, [counts[steps] / max(1, sum(counts)) if steps < len(counts) else 0.0 for steps in range(places)])
        for name, counts in staleness.items()
    ]
    note = "share of the trained tokens, at each line's best in-flight"
    return Chart(
        "Staleness of trained tokens",
        note,
        [*map(str, range(places))],
        "optimizer steps",
        series,
        bars=True,
        share=True,
    )


def _idle(best: dict[str, SimulationRow]) -> Chart:
    accounts = [
        (row.result.account.waited_s / row.result.account.seconds, row.result.engine_idle) for row in best.values()
    ]
    return Chart(
        "Idle share",
        "of the learner's time, and of the engines' time",
        list(best),
        "at its best in-flight",
        [
            Series("learner", [learner for learner, _ in accounts]),
            Series("engines", [engine for _, engine in accounts]),
        ],
        bars=True,
        share=True,
    )


def _queues(best: dict[str, SimulationRow]) -> Chart:
    samples = {name: row.result.account.samples for name, row in best.items()}
    places = max(map(len, samples.values()))
    series = [
        Series(name, [each[at].ready_groups if at < len(each) else None for at in range(places)])
        for name, each in samples.items()
    ]
    note = "closed groups that wait for the learner"
    return Chart(
        "Ready groups at the end of a step", note, [str(at + 1) for at in range(places)], "optimizer step", series
    )


def _dropped(best: dict[str, SimulationRow]) -> Chart:
    reasons = sorted({reason for row in best.values() for reason in row.result.dropped})
    series = [
        Series(reason.replace("_", " "), [float(row.result.dropped.get(reason, 0)) for row in best.values()])
        for reason in reasons
    ] or [Series("none", [0.0 for _ in best])]
    return Chart(
        "Dropped trajectories",
        "acknowledged and not trained, by reason",
        list(best),
        "at its best in-flight",
        series,
        bars=True,
    )


def _each_fault(best: dict[str, SimulationRow]) -> Chart:
    faults = {name: row.result.faults for name, row in best.items()}
    places = max(map(len, faults.values()))
    series = [
        Series(name, [float(each[at].tokens) if at < len(each) else None for at in range(places)])
        for name, each in faults.items()
    ]
    return Chart(
        "Tokens lost with each failed node",
        "sampled by its episodes and by the requests on its engine",
        [str(at + 1) for at in range(places)],
        "faults in order of time",
        series,
        bars=True,
    )


def _all_faults(best: dict[str, SimulationRow]) -> Chart:
    return Chart(
        "Throughput with faults",
        "trained tokens a second ÷ those of the same seed without faults",
        list(best),
        "at its best in-flight",
        [Series("", [row.vs_faultless for row in best.values()])],
        bars=True,
        share=True,
    )
