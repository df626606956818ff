"""Checks what a run guarantees, from its summary or else from its events.  Pure."""

from __future__ import annotations

from typing import NamedTuple

from launch.monitor.run_state.view import RunView
from protocol.cli.formatting import format_count, format_milliseconds, format_percent
from protocol.journal import TrajectoryAccounting
from protocol.run_directory.json_fields import Event, get_integer, get_mapping, get_number, get_text


class GuaranteeCheck(NamedTuple):
    """Whether the run kept one of its guarantees."""

    name: str
    kind: str
    """``kept``, ``broken`` or ``unknown``."""
    statement: str


def check_guarantees(
    view: RunView, known: Event, config: Event, accounting: TrajectoryAccounting[str], max_staleness: float | None
) -> list[GuaranteeCheck]:
    """Return a check of each guarantee, given summary.json as ``known`` and config.json, empty where there are none."""
    trajectories = get_mapping(known, "trajectories")
    return [
        _check_no_loss(accounting, measured=bool(trajectories)),
        _check_freshness(view, get_mapping(known, "staleness"), max_staleness),
        _check_colocation(view, get_mapping(known, "colocation"))
        or _check_pauses(
            view,
            get_mapping(known, "weights"),
            _pause_bound_ms(config),
            get_number(trajectories, "spanning_versions"),
        ),
    ]


def count_trajectories(view: RunView, known: Event) -> TrajectoryAccounting[str]:
    """Return the summary's accounting, or that of the events."""
    counts = get_mapping(known, "trajectories")
    if counts:
        dropped = {reason: int(n) for reason, n in get_mapping(counts, "dropped").items() if isinstance(n, int) and n}
        superseded, buffered = get_integer(counts, "superseded"), get_integer(counts, "in_buffer")
        return TrajectoryAccounting(
            get_integer(counts, "acknowledged"), get_integer(counts, "trained"), dropped, superseded, buffered
        )
    totals = view.totals
    buffered = max(0, totals.acknowledged - sum(totals.dropped.values()) - totals.superseded - totals.trained)
    return TrajectoryAccounting(totals.acknowledged, totals.trained, dict(totals.dropped), totals.superseded, buffered)


def _check_no_loss(accounting: TrajectoryAccounting[str], *, measured: bool) -> GuaranteeCheck:
    out = f"{format_count(accounting.trained)} trained + {format_count(sum(accounting.dropped.values()))} dropped"
    rest = f"{format_count(accounting.superseded)} superseded + {format_count(accounting.in_buffer)} in the buffer"
    statement = f"{format_count(accounting.acknowledged)} acknowledged = {out} + {rest}."
    if not measured:
        return GuaranteeCheck(
            "Lossless",
            "unknown",
            f"{format_count(accounting.acknowledged)} acknowledged; the run left no accounting to check.",
        )
    return GuaranteeCheck("Lossless", "kept" if accounting.balanced else "broken", statement)


def _check_freshness(view: RunView, staleness: Event, bound: float | None) -> GuaranteeCheck:
    known = [value for value in view.curves["staleness_max"] if value is not None]
    oldest = get_number(staleness, "max")
    oldest = max(known, default=None) if oldest is None else oldest
    if oldest is None or bound is None:
        return GuaranteeCheck("Fresh", "unknown", "No token was trained, or no bound was set.")
    steps = "step" if oldest == 1 else "steps"
    masked = f"; {format_count(view.tokens.masked)} older tokens were masked" if view.tokens.masked else ""
    statement = f"The oldest trained token was {oldest:g} {steps} old; the bound is {bound:g}{masked}."
    return GuaranteeCheck("Fresh", "kept" if oldest <= bound else "broken", statement)


def _check_colocation(view: RunView, colocation: Event) -> GuaranteeCheck | None:
    """Check how long a colocated run was blocked; return None for any other run."""
    share = get_number(colocation, "blocked_share") if colocation else view.blocked_share
    if share is None or get_text(colocation, "placement", "colocated") != "colocated":
        return None
    offloads = get_integer(colocation, "offloads")
    times = f" in {format_count(offloads)} periods" if offloads else ""
    return GuaranteeCheck(
        "Never blocking",
        "broken",
        "Learner and engines shared a device (cluster.placement = colocated): rollout was blocked while the learner "
        f"computed and weights were loaded,{times} {format_percent(share)} of the time.",
    )


def _pause_bound_ms(config: Event) -> float | None:
    """Return the configured limit of an engine's pause for a weight update, in milliseconds."""
    seconds = get_number(get_mapping(get_mapping(config, "config"), "engine"), "update_timeout_s")
    return None if seconds is None else 1000 * seconds


def _check_pauses(view: RunView, weights: Event, bound_ms: float | None, spanning: float | None) -> GuaranteeCheck:
    """Check that no engine paused longer than the configuration allows, failed loads included.  ``spanning`` is the
    number of trajectories that several versions sampled."""
    longest = max([get_number(weights, "pause_ms_max") or 0.0, *(engine.pause_ms_max for engine in view.engines)])
    loads = get_integer(weights, "loads", sum(engine.loads for engine in view.engines))
    if not loads and not longest:
        return GuaranteeCheck("Never blocking", "unknown", "No engine loaded new weights.")
    if not longest:
        return GuaranteeCheck(
            "Never blocking", "kept", f"Engines loaded weights {format_count(loads)} times without a pause."
        )
    middle = get_number(weights, "pause_ms_p50")
    median = "" if middle is None else f", half of them below {format_milliseconds(middle)}"
    share = get_number(weights, "paused_share")
    total = "" if share is None else f", {100 * share:.2g} % of the time"
    times = f"at most {format_milliseconds(longest)}{median}{total}"
    statement = f"Engines paused {format_count(loads)} times to load weights: {times}"
    if bound_ms is None:
        return GuaranteeCheck("Never blocking", "unknown", f"{statement}; the run left no bound to compare with.")
    kind = "kept" if longest <= bound_ms else "broken"
    through = "" if spanning is None else f" {format_count(spanning)} trajectories continued across a load."
    return GuaranteeCheck(
        "Never blocking", kind, f"{statement}. engine.update_timeout_s allows {format_milliseconds(bound_ms)}.{through}"
    )
