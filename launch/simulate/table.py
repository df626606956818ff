"""The table that a person reads on standard error, and on the page."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from launch.simulate.rows import Row

HEAD = (
    "mode",
    "policy",
    "η",
    "nodes",
    "in flight",
    "tokens/s",
    "÷ sync",
    "÷ unbounded",
    "age mean",
    "max",
    "masked",
    "share by length",
    "learner idle",
    "engine idle",
    "dropped",
)


def cells(row: Row) -> list[str]:
    cell, line = row.cell, row.as_json()
    account = row.outcome.account
    shares = account.share_by_decile()
    return [
        cell.mode.value,
        cell.policy.value,
        str(cell.eta),
        f"{cell.nodes:,}",
        f"{cell.in_flight:,}",
        f"{row.trained_tokens_per_s:,.0f}",
        f"{line['vs_sync']:.2f}",
        f"{line['vs_unbounded']:.3f}",
        f"{line['age_mean']:.2f}",
        f"{line['age_max']}",
        f"{100 * (1 - account.trained / max(1, account.sampled)):.1f} %",
        f"{min(shares):.2f}-{max(shares):.2f}",
        f"{100 * account.waited_s / account.seconds:.1f} %",
        f"{100 * row.outcome.engine_idle:.1f} %",
        f"{sum(row.outcome.dropped.values()):,}",
    ]


def print_table(console: Console, rows: Sequence[Row]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(HEAD):
        table.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)
