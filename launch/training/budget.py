"""The limits after which a run stops (``stop.after_…``), compared with the usage of all its starts.  Pure."""

from __future__ import annotations

from launch.run_records.step_facts import BudgetUsage
from launch.settings.stop import StopSettings


def first_limit_reached(stop: StopSettings, steps: int, trajectories: int, usage: BudgetUsage) -> str | None:
    """Return the first limit that is reached, as ``stop.KEY = VALUE``; None if none is.

    ``steps`` counts the steps of the run's lineage, ``trajectories`` the acknowledged ones."""
    limits = (
        ("after_steps", stop.after_steps, steps),
        ("after_tokens", stop.after_tokens, usage.tokens),
        ("after_trajectories", stop.after_trajectories, trajectories),
        ("after_hours", stop.after_hours, usage.seconds / 3600),
    )
    return next((f"stop.{name} = {limit:g}" for name, limit, used in limits if limit and used >= limit), None)
