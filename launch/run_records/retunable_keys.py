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
from launch.config.loader import Toml
from launch.run_records.run_directory import config_tables, is_fixed_key
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.settings import dotted_fields, suggest_key


class ChangePoint(StrEnum):
    """When a change holds."""

    ROLLOUT_REQUEST = "from the next ticket"
    STEP = "before the next step"
    CHECK = "at the next look"


LEARNING_RATE_KEY = "learner.lr"

RETUNABLE_KEYS: Mapping[str, ChangePoint] = {
    "rollout.in_flight": ChangePoint.ROLLOUT_REQUEST,
    "rollout.max_staleness": ChangePoint.ROLLOUT_REQUEST,
    "rollout.slack": ChangePoint.ROLLOUT_REQUEST,
    LEARNING_RATE_KEY: ChangePoint.STEP,
    "learner.publish_every": ChangePoint.STEP,
    "checkpoint.every_steps": ChangePoint.STEP,
    "stop.after_steps": ChangePoint.STEP,
    "stop.after_tokens": ChangePoint.STEP,
    "stop.after_trajectories": ChangePoint.STEP,
    "stop.after_hours": ChangePoint.STEP,
    "stop.after_s": ChangePoint.STEP,
    "run.stall_timeout_s": ChangePoint.CHECK,
}
"""Key → when a change of it holds."""


RetunableValue: TypeAlias = int | float | None
"""Of such a key; None where it has none."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    key: str
    before: RetunableValue
    after: RetunableValue

    def __str__(self) -> str:
        return f"{self.key} {_shown(self.before)} → {_shown(self.after)}, {RETUNABLE_KEYS[self.key].value}"


def resolve_retunable_key(key: str) -> str:
    """``section.key`` for a key of :data:`TUNABLE`, whose last part is enough.  Raises UserError with what keeps
    another from being changed."""
    if key in RETUNABLE_KEYS:
        return key
    named = [known for known in RETUNABLE_KEYS if known.rpartition(".")[2] == key]
    if len(named) == 1:
        return named[0]
    if key in set(dotted_fields(RunConfig)):
        why = (
            "what the run's checkpoints hold depends on it: begin another run"
            if is_fixed_key(key)
            else f"it is read when a run starts: stop the run and go on with it, --resume ID --set {key}=VALUE"
        )
        raise UserError(f"{key} cannot be changed while the run goes on: {why}")
    near = did_you_mean(key, [*RETUNABLE_KEYS, *(known.rpartition(".")[2] for known in RETUNABLE_KEYS)]) or suggest_key(
        RunConfig, key
    )
    raise UserError(f"there is no key '{key}'{near}; these can be changed: {', '.join(RETUNABLE_KEYS)}")


def parse_change(text: str) -> tuple[str, str]:
    """``KEY=VALUE`` → full key and value.  Raises UserError."""
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"retune {text}: write KEY=VALUE, for example rollout.in_flight=64")
    return resolve_retunable_key(key.strip()), value.strip()


def apply_changes(config: RunConfig, changes: Mapping[str, str]) -> RunConfig:
    """``config`` under ``changes``: full key → value, or nothing for the key's default.  Raises UserError."""
    values = config_tables(config)
    for key in [key for key, value in changes.items() if not value]:
        section, _, name = resolve_retunable_key(key).partition(".")
        values[section].pop(name, None)
    if LEARNING_RATE_KEY in changes:
        values["learner"].pop("lr_end", None)  # a straight line from another rate is over
    return resolve(
        values, [f"{resolve_retunable_key(key)}={value}" for key, value in changes.items() if value], source="retune"
    )


def diff_configs(before: RunConfig, after: RunConfig) -> list[KeyChange]:
    """What differs, of what can be changed."""
    old, new = retunable_values(before), retunable_values(after)
    found = [KeyChange(key, old[key], new[key]) for key in RETUNABLE_KEYS]
    return [change for change in found if change.before != change.after]


def retunable_values(config: RunConfig) -> dict[str, RetunableValue]:
    """What holds, of what can be changed."""
    values = config_tables(config)
    return {key: _value(values, key) for key in RETUNABLE_KEYS}


def _value(values: Mapping[str, Mapping[str, Toml]], key: str) -> RetunableValue:
    section, _, name = key.partition(".")
    return cast("RetunableValue", values[section].get(name))


def _shown(value: RetunableValue) -> str:
    return "none" if value is None else f"{value:g}"
