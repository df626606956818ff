"""Which keys of the configuration can be changed while a run goes on, and what becomes of a change.  Pure.

A change is checked as the whole configuration is, so its bounds are those of the key, and of all that has to agree with
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, cast

from launch.config import RunConfig, resolve
from launch.config.base import dotted_fields, suggest_key
from launch.config.load import Toml
from launch.rundir import config_values, is_fixed
from protocol.cli.words import did_you_mean
from protocol.errors import UserError


class Point(StrEnum):
    """When a change holds."""

    TICKET = "from the next ticket"
    STEP = "before the next step"
    LOOK = "at the next look"


LR = "learner.lr"

TUNABLE: Mapping[str, Point] = {
    "rollout.in_flight": Point.TICKET,
    "rollout.lead": Point.TICKET,
    "rollout.slack": Point.TICKET,
    LR: Point.STEP,
    "learner.publish_every": Point.STEP,
    "checkpoint.every_steps": Point.STEP,
    "stop.after_steps": Point.STEP,
    "stop.after_tokens": Point.STEP,
    "stop.after_trajectories": Point.STEP,
    "stop.after_hours": Point.STEP,
    "stop.after_s": Point.STEP,
    "run.stall_s": Point.LOOK,
}
"""Key → when a change of it holds."""


Value: TypeAlias = int | float | None
"""Of such a key; None where it has none."""


@dataclass(frozen=True, slots=True)
class Change:
    key: str
    before: Value
    after: Value

    def __str__(self) -> str:
        return f"{self.key} {_shown(self.before)} → {_shown(self.after)}, {TUNABLE[self.key].value}"


def full_key(key: str) -> str:
    """``section.key`` for a key of :data:`TUNABLE`, whose last part is enough.  Raises UserError with what keeps
    another from being changed."""
    if key in TUNABLE:
        return key
    named = [known for known in TUNABLE if known.rpartition(".")[2] == key]
    if len(named) == 1:
        return named[0]
    if key in set(dotted_fields(RunConfig)):
        why = (
            "what the run's checkpoints hold depends on it: begin another run"
            if is_fixed(key)
            else f"it is read when a run starts: stop the run and go on with it, --resume ID --set {key}=VALUE"
        )
        raise UserError(f"{key} cannot be changed while the run goes on: {why}")
    near = did_you_mean(key, [*TUNABLE, *(known.rpartition(".")[2] for known in TUNABLE)]) or suggest_key(
        RunConfig, key
    )
    raise UserError(f"there is no key '{key}'{near}; these can be changed: {', '.join(TUNABLE)}")


def parse_change(text: str) -> tuple[str, str]:
    """``KEY=VALUE`` → full key and value.  Raises UserError."""
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"retune {text}: write KEY=VALUE, for example rollout.in_flight=64")
    return full_key(key.strip()), value.strip()


def retuned(config: RunConfig, changes: Mapping[str, str]) -> RunConfig:
    """``config`` under ``changes``: full key → value, or nothing for the key's default.  Raises UserError."""
    values = config_values(config)
    for key in [key for key, value in changes.items() if not value]:
        section, _, name = full_key(key).partition(".")
        values[section].pop(name, None)
    if LR in changes:
        values["learner"].pop("lr_end", None)  # a straight line from another rate is over
    return resolve(values, [f"{full_key(key)}={value}" for key, value in changes.items() if value], source="retune")


def changes_between(before: RunConfig, after: RunConfig) -> list[Change]:
    """What differs, of what can be changed."""
    old, new = values_of(before), values_of(after)
    found = [Change(key, old[key], new[key]) for key in TUNABLE]
    return [change for change in found if change.before != change.after]


def values_of(config: RunConfig) -> dict[str, Value]:
    """What holds, of what can be changed."""
    values = config_values(config)
    return {key: _value(values, key) for key in TUNABLE}


def _value(values: Mapping[str, Mapping[str, Toml]], key: str) -> Value:
    section, _, name = key.partition(".")
    return cast("Value", values[section].get(name))


def _shown(value: Value) -> str:
    return "none" if value is None else f"{value:g}"
