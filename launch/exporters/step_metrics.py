"""Reads the lines of ``metrics.jsonl`` as the metrics of steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from protocol.events import JsonValue
from protocol.run_directory.json_fields import Event, get_number
from protocol.run_directory.layout import METRICS_FILE
from protocol.run_directory.run_tail import RunTail

STEP_FILES = (METRICS_FILE,)
_NOT_FIGURES = frozenset({"step", "t"})


class StepMetrics(NamedTuple):
    step: int
    values: Mapping[str, float]
    """All numbers of the line; those of its tables are named ``table/key``."""


def read_new_steps(tail: RunTail) -> Iterator[StepMetrics]:
    """Yield the steps written since the last call, without the lines that take steps back."""
    for line in tail.iter_events():
        if (step := get_number(line, "step")) is not None:
            yield StepMetrics(int(step), numeric_metrics(line))


def numeric_metrics(line: Event) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, value in line.items():
        if key in _NOT_FIGURES:
            continue
        if _is_number(value):
            found[key] = float(str(value))
        elif isinstance(value, dict):
            found |= {f"{key}/{name}": float(str(each)) for name, each in value.items() if _is_number(each)}
    return found


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
