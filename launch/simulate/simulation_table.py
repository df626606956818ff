"""The tables of a simulation, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Sequence

from launch.simulate.simulation_rows import SimulationRow, best_rows
from protocol.cli.formatting import format_percent
from protocol.cli.output import align_columns

_TEXT_COLUMNS = 2
"""Number of leading text columns of both tables."""

HEAD = (
    "mode",
    "policy",
    "max staleness",
    "nodes",
    "in flight",
    "tokens/s",
    "÷ sync",
    "÷ unbounded",
    "mean staleness",
    "oldest",
    "masked",
    "share by length",
    "learner idle",
    "engine idle",
    "dropped",
    "faults",
    "÷ faultless",
)
FAULTS_HEAD = (
    "row",
    "node",
    "minute",
    "episodes restarted",
    "requests moved",
    "tokens lost",
    "minutes away",
)


def row_cells(row: SimulationRow) -> list[str]:
    cell, line = row.cell, row.as_json()
    account = row.result.account
    shares = account.trained_share_by_decile()
    return [
        cell.mode.value,
        cell.policy.value,
        str(cell.max_staleness),
        f"{cell.nodes:,}",
        f"{cell.in_flight:,}",
        f"{row.trained_tokens_per_s:,.0f}",
        f"{line['vs_sync']:.2f}",
        f"{line['vs_unbounded']:.3f}",
        f"{line['staleness_mean']:.2f}",
        f"{line['staleness_max']}",
        format_percent(1 - account.trained / max(1, account.sampled)),
        f"{min(shares):.2f}-{max(shares):.2f}" if shares else "–",
        format_percent(account.waited_s / account.seconds),
        format_percent(row.result.engine_idle),
        f"{sum(row.result.dropped.values()):,}",
        f"{len(row.result.faults)}",
        f"{row.vs_faultless:.3f}",
    ]


def fault_cells(rows: Sequence[SimulationRow]) -> list[list[str]]:
    """Return the faults of the best row of each label."""
    return [
        [
            name,
            f"node {fault.node}",
            f"{fault.at_s / 60:.1f}",
            f"{fault.episodes}",
            f"{fault.requests}" if fault.engine else "-",
            f"{fault.tokens:,}",
            "-" if fault.away_s is None else f"{fault.away_s / 60:.1f}",
        ]
        for name, row in best_rows(rows).items()
        for fault in row.result.faults
    ]


def table_lines(rows: Sequence[SimulationRow]) -> list[str]:
    """Return the rows as lines of text, and below them the faults."""
    faults = fault_cells(rows)
    below = ["", *align_columns([FAULTS_HEAD, *faults], text_columns=_TEXT_COLUMNS)] if faults else []
    return [*align_columns([HEAD, *map(row_cells, rows)], text_columns=_TEXT_COLUMNS), *below]
