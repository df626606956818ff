"""The keys of the configuration that can be changed during a run.  Pure.

A change is checked like the whole configuration, with the bounds of the key and the checks across keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, cast

from launch.config import RunConfig, resolve
from launch.config.loader import Toml
from launch.run_records.stored_config import config_tables, is_fixed_key
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.settings import dotted_fields, suggest_key


class ChangePoint(StrEnum):
    """When a change takes effect."""

    ROLLOUT_REQUEST = "from the next rollout request"
    STEP = "before the next step"
    CHECK = "at the next check"


LEARNING_RATE_KEY = "learner.lr"

RETUNABLE_KEYS: Mapping[str, ChangePoint] = {
    "rollout.in_flight": ChangePoint.ROLLOUT_REQUEST,
    "rollout.max_steps_ahead": ChangePoint.ROLLOUT_REQUEST,
    "rollout.slack": ChangePoint.ROLLOUT_REQUEST,
    LEARNING_RATE_KEY: ChangePoint.STEP,
    "learner.publish_every": ChangePoint.STEP,
    "checkpoint.every_steps": ChangePoint.STEP,
    "stop.after_steps": ChangePoint.STEP,
    "stop.after_tokens": ChangePoint.STEP,
    "stop.after_trajectories": ChangePoint.STEP,
    "stop.after_hours": ChangePoint.STEP,
    "run.stall_timeout_s": ChangePoint.CHECK,
}
"""Key → when a change of it takes effect."""


RetunableValue: TypeAlias = int | float | None
"""Value of a retunable key; None if it is not set."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    key: str
    before: RetunableValue
    after: RetunableValue

    def __str__(self) -> str:
        return f"{self.key} {_shown(self.before)} → {_shown(self.after)}, {RETUNABLE_KEYS[self.key].value}"


def resolve_retunable_key(key: str) -> str:
    """Return the full name of a retunable key, of which the last part is enough.  Raises UserError that says why
    another key cannot be changed."""
    if key in RETUNABLE_KEYS:
        return key
    named = [known for known in RETUNABLE_KEYS if known.rpartition(".")[2] == key]
    if len(named) == 1:
        return named[0]
    if key in set(dotted_fields(RunConfig)):
        why = (
            "the run's checkpoints depend on it: start another run"
            if is_fixed_key(key)
            else f"it is read when a run starts: stop the run and resume it, --resume ID --set {key}=VALUE"
        )
        raise UserError(f"{key} cannot be changed during the run: {why}")
    near = did_you_mean(key, [*RETUNABLE_KEYS, *(known.rpartition(".")[2] for known in RETUNABLE_KEYS)]) or suggest_key(
        RunConfig, key
    )
    raise UserError(f"there is no key '{key}'{near}; these can be changed: {', '.join(RETUNABLE_KEYS)}")


def parse_change(text: str) -> tuple[str, str]:
    """Return full key and value of ``KEY=VALUE``.  Raises UserError."""
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"retune {text}: write KEY=VALUE, for example rollout.in_flight=64")
    return resolve_retunable_key(key.strip()), value.strip()


def apply_changes(config: RunConfig, changes: Mapping[str, str]) -> RunConfig:
    """Return ``config`` with ``changes``, full key → value; an empty value resets a key to its default.  Raises
    UserError."""
    values = config_tables(config)
    for key in [key for key, value in changes.items() if not value]:
        section, _, name = resolve_retunable_key(key).partition(".")
        values[section].pop(name, None)
    if LEARNING_RATE_KEY in changes:
        values["learner"].pop("lr_end", None)  # it ends a line from the other rate
    return resolve(
        values, [f"{resolve_retunable_key(key)}={value}" for key, value in changes.items() if value], source="retune"
    )


def diff_configs(before: RunConfig, after: RunConfig) -> list[KeyChange]:
    """Return the retunable keys that differ."""
    old, new = retunable_values(before), retunable_values(after)
    changes = [KeyChange(key, old[key], new[key]) for key in RETUNABLE_KEYS]
    return [change for change in changes if change.before != change.after]


def retunable_values(config: RunConfig) -> dict[str, RetunableValue]:
    """Return the values of the retunable keys."""
    values = config_tables(config)
    return {key: _value(values, key) for key in RETUNABLE_KEYS}


def _value(values: Mapping[str, Mapping[str, Toml]], key: str) -> RetunableValue:
    section, _, name = key.partition(".")
    return cast("RetunableValue", values[section].get(name))


def _shown(value: RetunableValue) -> str:
    return "none" if value is None else f"{value:g}"
