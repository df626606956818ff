"""The table that a person reads on standard error, and on the page."""

from __future__ import annotations

from collections.abc import Sequence

from launch.simulate.rows import Row

_TEXTS = 2
"""Columns that are no numbers."""

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


def lines(rows: Sequence[Row]) -> list[str]:
    """Columns as wide as they need, text to the left, numbers to the right: whole also where no terminal is."""
    texts = [list(HEAD), *(cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number < _TEXTS else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(text, widths, strict=True))
        ).rstrip()
        for text in texts
    ]
