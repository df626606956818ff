"""Formats a plan as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launch.plan.forecast import Forecast, ResourceNeeds
from launch.plan.memory import ProcessMemory
from protocol.cli.formatting import format_bytes


def memory_lines(memories: Sequence[ProcessMemory], device_bytes: int | None) -> Iterator[str]:
    for memory in memories:
        yield (
            f"memory of the {memory.process}"
            if memory.count == 1
            else f"memory of each of {memory.count} {memory.process}s"
        )
        for part in memory.parts:
            yield f"  {part.name:<12} {format_bytes(part.bytes):>12}  {part.why}"
        of = f" of {format_bytes(device_bytes)}" if device_bytes is not None else ""
        yield f"  {'peak':<12} {format_bytes(memory.peak_bytes):>12}{of}"


def forecast_lines(forecast: Forecast) -> Iterator[str]:
    yield f"forecast from {forecast.source}"
    tokens_per_s = forecast.trained_tokens_per_s
    yield f"  {forecast.steps_per_hour:,.1f} steps per hour, {tokens_per_s:,.1f} trained tokens per second"
    yield (
        f"  staleness {forecast.staleness_mean:.2f} on average, {forecast.staleness_max} at most; "
        f"{forecast.trained_share:.1%} trained"
    )
    yield f"  {forecast.in_flight:,.1f} concurrent episodes, of at most {forecast.capacity:,}"
    yield (
        f"  idle: learner {forecast.learner_idle:.1%}, engines {forecast.engine_idle:.1%}; "
        f"{forecast.dropped_share:.1%} of the trajectories dropped"
    )
    yield f"  bottleneck {forecast.bottleneck}: {forecast.bottleneck.advice}"


def needs_lines(needs: ResourceNeeds, *, engines: int, capacity: int, hosts: int) -> Iterator[str]:
    yield "needed so that the learner never waits (this recipe has)"
    for name, wanted, has in (
        ("sandboxes", needs.sandboxes, capacity),
        ("engines", needs.engines, engines),
        ("machines", needs.hosts, hosts),
    ):
        yield f"  {name:<12} {wanted:>12,}  ({has:,})"
