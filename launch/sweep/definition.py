"""Reads the definition of a sweep, a recipe, common keys and axes, from its file and the command line.

    about = "one line for a person"
    kind = "train"                  # or "evaluate"
    recipe = "demo"

    [common]                        # keys of every point
    staleness.max_staleness = 4

    [axes]
    run.seed = [0, 1, 2]            # an axis of one key

    [axes.objective.gspo]           # a choice on the axis objective, which sets the keys below it
    learner.loss = "gspo"

    [goal]                          # minimum of a metric, for every point
    difference = 0.3

Keys with a dot belong to the recipe; in a sweep of evaluations, others are options of ``longshore evaluate``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import cast

from pydantic import Field, ValidationError

from launch.config import ConfigError, RunConfig, dotted_fields, recipe_names
from launch.config.loader import Toml, parse_override
from launch.sweep.axes import SweepAxis, SweepPoint, build_points, flatten_keys, named_axis, parse_value, plain_axis
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.settings import ConfigSection, explain_errors, suggest_key

SWEEPS_FOLDER = Path(__file__).resolve().parent / "sweeps"
RECIPE_KEYS = frozenset(dotted_fields(RunConfig))
EVALUATE_OPTIONS = frozenset(
    {
        *("model", "oracle", "noop", "tasks", "datasets", "only", "task-ids", "attempts", "concurrency", "temperature"),
        *("greedy", "seed", "model-name", "key-file", "retry-errors", "save-trajectories", "no-record"),
    }
)
"""Options of ``longshore evaluate`` that a sweep may set."""
_RESERVED = frozenset({"run.dir", "evaluation.before_from"})
"""Keys that sweeps set themselves."""
_SEE_KEYS = " (to see the keys: `longshore cluster demo --dry-run`)"
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")


class SweepKind(StrEnum):
    """Kind of the points."""

    TRAIN = "train"
    """A training run."""
    EVALUATE = "evaluate"
    """An evaluation."""

    @property
    def seed_key(self) -> str:
        """Key over whose values points are averaged."""
        return "run.seed" if self is SweepKind.TRAIN else "seed"


class SweepFile(ConfigSection):
    about: str = ""
    kind: SweepKind = SweepKind.TRAIN
    recipe: str = "demo"
    common: dict[str, object] = Field(default_factory=dict[str, object])
    axes: dict[str, object] = Field(default_factory=dict[str, object])
    goal: dict[str, float] = Field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Sweep:
    name: str
    """Default name of its folder."""
    kind: SweepKind
    recipe: str
    common: Mapping[str, Toml]
    axes: tuple[SweepAxis, ...]
    points: tuple[SweepPoint, ...]
    about: str = ""
    goal: Mapping[str, float] = field(default_factory=dict[str, float])

    def values(self, point: SweepPoint) -> dict[str, Toml]:
        """Return all keys of ``point``; its own win over the common ones."""
        return {**self.common, **point.values}

    @property
    def seed_axis(self) -> str:
        """Name of the axis that varies only the seed; empty without one."""
        return next((axis.name for axis in self.axes if axis.keys == frozenset({self.kind.seed_key})), "")


def sweep_names() -> list[str]:
    return sorted(path.stem for path in SWEEPS_FOLDER.glob("*.toml"))


def is_sweep(path: Path) -> bool:
    """Return whether the file is a sweep's and no recipe.  Raises ConfigError if it is no TOML."""
    return not _tables(path).keys().isdisjoint(SweepFile.model_fields)


def find_sweep_file(what: str) -> Path | None:
    """Return the file of the sweep ``what``, a name or a path; None if it is a recipe.  Raises UserError."""
    if what.endswith(".toml") or "/" in what:
        return Path(what) if is_sweep(Path(what)) else None
    if what in sweep_names():
        return SWEEPS_FOLDER / f"{what}.toml"
    if what in recipe_names():
        return None
    known = (*sweep_names(), *recipe_names())
    raise UserError(
        f"there is no sweep '{what}' and no recipe of that name: the sweeps are {', '.join(sweep_names())}, the "
        f"recipes {', '.join(recipe_names())}; a file of your own is given by its path, ending in .toml"
        f"{did_you_mean(what, known)}"
    )


def read_sweep_file(path: Path) -> SweepFile:
    """Read a sweep's file.  Raises ConfigError or UserError."""
    try:
        return SweepFile.model_validate(_tables(path))
    except ValidationError as error:
        raise explain_errors(SweepFile, error, f"sweep {path}") from error


def _tables(path: Path) -> dict[str, Toml]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; the sweeps are {', '.join(sweep_names())}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def build_sweep(name: str, file: SweepFile, sets: Mapping[str, Toml], axes: Sequence[SweepAxis]) -> Sweep:
    """Return the sweep of ``file``; the command line's ``sets`` win, and its ``axes`` replace those of the same name.

    Raises UserError that names all unknown keys."""
    replaced = {axis.name for axis in axes}
    all_axes = (*(axis for axis in _axes(file) if axis.name not in replaced), *axes)
    common = flatten_keys(cast("Mapping[str, Toml]", file.common), RECIPE_KEYS) | dict(sets)
    problems = [line for axis in all_axes for line in unknown_keys(file.kind, axis.keys, f"axis {axis.name}")]
    if problems := [*problems, *unknown_keys(file.kind, common, "the common part")]:
        raise ConfigError("; also: ".join(problems))
    for axis in all_axes:
        if both := sorted(axis.keys & sets.keys()):
            raise UserError(f"--set {both[0]} and the axis {axis.name} both set it: leave one of them out")
    named = name or "-".join((Path(file.recipe).stem, *(axis.name for axis in all_axes)))
    return Sweep(
        name=_UNSAFE.sub("_", named).strip("_") or "sweep",
        kind=file.kind,
        recipe=file.recipe,
        common=common,
        axes=all_axes,
        points=build_points(all_axes),
        about=file.about,
        goal=file.goal,
    )


def parse_set(kind: SweepKind, word: str) -> tuple[str, Toml]:
    """Parse ``KEY=VALUE`` of a command line.  Raises UserError."""
    key, equals, raw = (part.strip() for part in word.partition("="))
    if "." in key or kind is SweepKind.TRAIN:
        return parse_override(word)
    if not equals or not key or not raw:
        raise UserError(f"--set {word}: write it as OPTION=VALUE, for example --set attempts=4")
    return key, parse_value(raw)


def unknown_keys(kind: SweepKind, keys: Iterable[str], where: str) -> list[str]:
    """Return a line for each key that cannot be set."""
    return [f"{where}: {why}" for key in sorted(keys) if (why := _explain_refusal(kind, key))]


def _explain_refusal(kind: SweepKind, key: str) -> str:
    if key in _RESERVED:
        return f"{key} is set by the sweep itself (its folder: --output FOLDER)"
    if "." not in key and kind is SweepKind.EVALUATE:
        return (
            ""
            if key in EVALUATE_OPTIONS
            else f"evaluate has no option '{key}' to sweep{did_you_mean(key, EVALUATE_OPTIONS)}"
        )
    if key in RECIPE_KEYS:
        return ""
    hint = "; it is an option of evaluate: --evaluate" if key in EVALUATE_OPTIONS else suggest_key(RunConfig, key)
    return f"unknown key '{key}'{hint}{_SEE_KEYS}"


def _axes(file: SweepFile) -> list[SweepAxis]:
    """Return the axes of a file: a table without a section's name has named choices, all else are keys with values."""
    found: list[SweepAxis] = []
    for name, value in cast("Mapping[str, Toml]", file.axes).items():
        if isinstance(value, dict) and name not in RunConfig.model_fields:
            found.append(_named(name, value))
            continue
        for key, values in flatten_keys({name: value}, RECIPE_KEYS).items():
            if not isinstance(values, list):
                raise ConfigError(f"axis {key}: write its values in brackets, {key} = [VALUE, VALUE]")
            found.append(plain_axis(key, values))
    return found


def _named(name: str, choices: Mapping[str, Toml]) -> SweepAxis:
    found: dict[str, dict[str, Toml]] = {}
    for each, keys in choices.items():
        if not isinstance(keys, dict):
            raise ConfigError(
                f"axis {name}: '{each}' is no table of keys: write [axes.{name}.{each}] and the keys below it, or name "
                f"a key that there is{suggest_key(RunConfig, f'{name}.{each}')}"
            )
        found[each] = flatten_keys(keys, RECIPE_KEYS)
    return named_axis(name, found)
