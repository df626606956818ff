"""The machines and incidents of the dashboard, a function of its seed.  Standard library only."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass

REGIONS = ("oslo", "lyon", "turin", "porto")
TEAMS = ("search", "billing", "storage", "mobile")
STATUSES = ("healthy", "degraded", "down")
SEVERITIES = ("low", "medium", "high")
OPERATORS = (("nadia", "beacon9"), ("piotr", "anchor4"))
"""Names and passwords."""
_ROLES = ("web", "db", "cache", "queue")
_TROUBLES = ("disk almost full", "slow answers", "certificate ends soon", "restarts by itself", "clock drifts")


@dataclass(frozen=True, slots=True)
class WatchedMachine:
    name: str
    region: str
    team: str
    status: str
    cpu_percent: int
    memory_gb: int
    uptime_days: int

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Incident:
    id: int
    title: str
    machine: str
    team: str
    severity: str
    status: str
    """``open`` or ``resolved``."""


def make_machines(seed: int) -> list[WatchedMachine]:
    """Return 36 machines, ordered by name; no two have the same uptime."""
    rng = random.Random(f"machines {seed}")
    numbers, uptimes = rng.sample(range(10, 100), 36), rng.sample(range(1, 900), 36)
    made = [
        WatchedMachine(
            f"{rng.choice(_ROLES)}-{number}",
            rng.choice(REGIONS),
            rng.choice(TEAMS),
            rng.choices(STATUSES, (6, 2, 1))[0],
            rng.randint(3, 98),
            rng.choice((8, 16, 32, 64, 128)),
            uptime,
        )
        for number, uptime in zip(numbers, uptimes, strict=True)
    ]
    return sorted(made, key=lambda machine: machine.name)


def make_incidents(seed: int) -> list[Incident]:
    """Return 24 incidents."""
    rng, machines = random.Random(f"incidents {seed}"), make_machines(seed)
    chosen = [rng.choice(machines) for _ in range(24)]
    return [
        Incident(
            number,
            f"{machine.name}: {rng.choice(_TROUBLES)}",
            machine.name,
            machine.team,
            rng.choice(SEVERITIES),
            rng.choice(("open", "open", "resolved")),
        )
        for number, machine in enumerate(chosen, 101)
    ]
