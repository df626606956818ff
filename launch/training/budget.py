"""What a run may use before it ends: ``stop.after_…`` against what all its attempts have used.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields

from launch.run_records.step_facts import BudgetUsage


@dataclass(frozen=True, slots=True)
class Budget:
    """Each 0 for no limit."""

    after_steps: int = 0
    after_tokens: int = 0
    after_trajectories: int = 0
    after_hours: float = 0.0
    after_s: float = 0.0

    def first_limit_reached(self, steps: int, trajectories: int, usage: BudgetUsage) -> str | None:
        """The first limit that holds, as a person writes it.  ``steps`` are those that stand, ``trajectories`` what was
        acknowledged."""
        used = (steps, usage.tokens, trajectories, usage.seconds / 3600, usage.seconds)
        for field, amount in zip(fields(self), used, strict=True):
            limit: float = getattr(self, field.name)
            if limit and amount >= limit:
                return f"stop.{field.name} = {limit:g}"
        return None
