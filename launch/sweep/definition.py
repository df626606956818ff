"""Reads a sweep from its file and the command line into points: docs/sweep.md has the format.

An axis is a key with values, or a name with choices that each set several keys; a point is one choice on each axis.
Keys with a dot belong to the recipe; in a sweep of evaluations, others are options of ``longshore evaluate``.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

from pydantic import Field, ValidationError

from launch.config import ConfigError, RunConfig, dotted_fields, recipe_names
from launch.config.command_line import DEFAULT_RECIPE
from launch.config.loader import SEE_KEYS, Toml, flatten_tables, parse_toml, read_toml
from launch.config.toml_text import format_toml
from launch.evaluation.evaluation_options import EvaluateArguments
from protocol.cli.arguments import option_name
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.settings import ConfigSection, explain_errors, suggest_key

SWEEPS_FOLDER = Path(__file__).resolve().parent / "sweeps"
_OWN_KEYS = frozenset({"run.dir", "evaluation.before_from"})
"""Keys that a sweep sets itself."""
_RECIPE_KEYS = frozenset(dotted_fields(RunConfig)) - _OWN_KEYS
_EVALUATE_OPTIONS = frozenset(
    option_name(EvaluateArguments, field).removeprefix("--")
    for field in EvaluateArguments.model_fields.keys() - {"recipe", "overrides", "output", "dry_run", "as_json"}
)
_UNSAFE = re.compile(r"[^A-Za-z0-9._]+")
_MAX_SWEEP_CHARS, _MAX_POINT_CHARS = 30, 80

C = TypeVar("C")
Settings: TypeAlias = Mapping[str, Toml]
"""Key → value."""


class SweepKind(StrEnum):
    TRAIN = "train"
    """Points are training runs."""
    EVALUATE = "evaluate"
    """Points are evaluations."""

    @property
    def seed_key(self) -> str:
        """Key over whose values points are averaged."""
        return "run.seed" if self is SweepKind.TRAIN else "seed"


class SweepFile(ConfigSection):
    about: str = ""
    kind: SweepKind = SweepKind.TRAIN
    recipe: str = DEFAULT_RECIPE
    common: dict[str, object] = Field(default_factory=dict[str, object])
    axes: dict[str, object] = Field(default_factory=dict[str, object])
    goal: dict[str, float] = Field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class SweepAxis:
    name: str
    """The key, or the axis's own name."""
    choices: Mapping[str, Settings]
    """Label, a part of folders' names → what the choice sets."""

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(key for settings in self.choices.values() for key in settings)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    name: str
    axes: Mapping[str, str]
    """Axis → the value, or the name of the choice."""
    settings: Settings
    """Keys that its choices set, with their values."""
    folder: Path
    """Its name, which also names a run's containers, includes the sweep's."""


@dataclass(frozen=True, slots=True)
class Sweep:
    about: str
    kind: SweepKind
    recipe: str
    common: Settings
    """Settings of every point."""
    goal: Mapping[str, float]
    """Metric → its minimum at every point."""
    points: Sequence[SweepPoint]
    seed_axis: str
    """Axis that varies only the seed; empty without one."""
    folder: Path
    """Absolute."""

    def settings(self, point: SweepPoint) -> dict[str, Toml]:
        """Return all settings of ``point``; its own win over the common ones."""
        return {**self.common, **point.settings}

    def configure_points(self, configure: Callable[[SweepPoint], C]) -> dict[str, C]:
        """Return point's name → its configuration.  Raises UserError for the first that cannot run."""
        found: dict[str, C] = {}
        for point in self.points:
            try:
                found[point.name] = configure(point)
            except UserError as error:
                raise UserError(f"point {point.name}: {error}") from error
        return found


def sweep_names() -> list[str]:
    return sorted(path.stem for path in SWEEPS_FOLDER.glob("*.toml"))


def read_definition(what: str) -> tuple[str, SweepFile]:
    """Return name and content of the sweep ``what``, a name or path; for a recipe, an empty name and a sweep of it.

    Raises UserError."""
    sweeps, recipes = sweep_names(), recipe_names()
    if what in recipes:
        return "", SweepFile(recipe=what)
    if what not in sweeps and not what.endswith(".toml") and "/" not in what:
        raise UserError(
            f"there is no sweep '{what}' and no recipe of that name: the sweeps are {', '.join(sweeps)}, the recipes "
            f"{', '.join(recipes)}; a file of your own is given by its path, ending in .toml"
            f"{did_you_mean(what, sweeps + recipes)}"
        )
    path = SWEEPS_FOLDER / f"{what}.toml" if what in sweeps else Path(what)
    try:
        tables = read_toml(path)
        if tables.keys().isdisjoint(SweepFile.model_fields):
            return "", SweepFile(recipe=what)
        return path.stem, SweepFile.model_validate(tables)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; the sweeps are {', '.join(sweeps)}") from error
    except ValidationError as error:
        raise explain_errors(SweepFile, error, f"sweep {path}") from error


def parse_axis(word: str) -> SweepAxis:
    """Parse ``KEY=VALUE,VALUE`` of a command line.  Raises UserError."""
    key, _, raw = (part.strip() for part in word.partition("="))
    if not key or not raw:
        raise UserError(f"--axis {word}: write it as KEY=VALUE,VALUE, for example --axis run.seed=0,1,2")
    try:
        return key_axis(key, cast("list[Toml]", tomllib.loads(f"values = [{raw}]")["values"]))
    except tomllib.TOMLDecodeError:
        return key_axis(key, [parse_toml(each.strip()) for each in raw.split(",")])


def key_axis(key: str, values: Sequence[Toml]) -> SweepAxis:
    """Return the axis of one key.  Raises UserError for an empty or repeated value."""
    for number, value in enumerate(values):
        if value == "" or value in values[:number]:
            raise UserError(
                f"axis {key}: {'a value is empty' if value == '' else f'{value} is there twice'}: leave it out"
            )
    return _axis(key, [(_label(key, value), {key: value}) for value in values])


def _label(key: str, value: Toml) -> str:
    """Return the last part of a path or URL, or a number with its key."""
    if isinstance(value, str):
        _, url, rest = value.partition("://")
        return _safe(rest if url else value.rstrip("/").rpartition("/")[2])
    separator = "_" if isinstance(value, bool) else ""
    return _safe(f"{key.rpartition('.')[2]}{separator}{format_toml(value)}")


def _safe(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("_.") or "x"


def _axis(name: str, choices: Sequence[tuple[str, Settings]]) -> SweepAxis:
    """Number equal labels.  Raises UserError if there are no choices."""
    if not choices:
        raise UserError(f"axis {name} has no values: give it some, or leave it out")
    found: dict[str, Settings] = {}
    for label, settings in choices:
        labels = itertools.chain([label], (f"{label}_{number}" for number in itertools.count(2)))
        found[next(each for each in labels if each not in found)] = settings
    return SweepAxis(name, found)


def build_sweep(
    file: SweepFile, name: str, sets: Settings, axes: Sequence[SweepAxis], output: Path | None = None
) -> Sweep:
    """Return the sweep of ``file``; the command line's ``sets`` win, and its ``axes`` replace those of the same name.

    Raises UserError, which names all unknown keys."""
    replaced = {axis.name for axis in axes}
    all_axes = [*(axis for axis in _read_axes(file) if axis.name not in replaced), *axes]
    common = {**flatten_tables(cast("Settings", file.common)), **sets}
    _check_keys(file.kind, common, sets, all_axes)
    name = name or "-".join((Path(file.recipe).stem, *(axis.name for axis in all_axes)))
    folder = (output or Path("sweeps", _safe(name.replace(".", "_")))).absolute()
    points = [*_build_points(all_axes, folder, file.kind)]
    seed_axis = next((axis.name for axis in all_axes if axis.keys == frozenset({file.kind.seed_key})), "")
    return Sweep(file.about, file.kind, file.recipe, common, file.goal, points, seed_axis, folder)


def _build_points(axes: Sequence[SweepAxis], folder: Path, kind: SweepKind) -> Iterator[SweepPoint]:
    """Yield every point; the last axis varies fastest."""
    parent = folder / ("runs" if kind is SweepKind.TRAIN else "evaluations")
    for choices in itertools.product(*(axis.choices.items() for axis in axes)):
        name = "-".join(label for label, _ in choices)
        if len(name) > _MAX_POINT_CHARS:
            name = f"{name[:_MAX_POINT_CHARS]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        settings = {key: value for _, choice in choices for key, value in choice.items()}
        values = {axis.name: settings.get(axis.name, label) for axis, (label, _) in zip(axes, choices, strict=True)}
        shown = {axis: value if isinstance(value, str) else format_toml(value) for axis, value in values.items()}
        yield SweepPoint(name, shown, settings, parent / f"{_safe(folder.name)[:_MAX_SWEEP_CHARS]}-{name}")


def _read_axes(file: SweepFile) -> Iterator[SweepAxis]:
    """Yield the axes of a file: a table without a section's name has named choices, all else are keys with values.

    Raises UserError."""
    for name, value in cast("Settings", file.axes).items():
        if isinstance(value, dict) and name not in RunConfig.model_fields:
            yield _axis(name, [(_safe(choice), _read_choice(name, choice, keys)) for choice, keys in value.items()])
            continue
        for key, values in flatten_tables({name: value}).items():
            if not isinstance(values, list):
                raise ConfigError(f"axis {key}: write its values in brackets, {key} = [VALUE, VALUE]")
            yield key_axis(key, values)


def _read_choice(axis: str, name: str, keys: Toml) -> Settings:
    if not isinstance(keys, dict):
        raise ConfigError(
            f"axis {axis}: '{name}' is not a table of keys: write [axes.{axis}.{name}] and the keys below it, or name "
            f"a key that there is{suggest_key(RunConfig, f'{axis}.{name}')}"
        )
    return flatten_tables(keys)


def _check_keys(kind: SweepKind, common: Settings, sets: Settings, axes: Sequence[SweepAxis]) -> None:
    """Raise UserError if keys cannot be set, if two axes, or one and the command line, set the same key, and if nothing
    varies."""
    known = _RECIPE_KEYS | _EVALUATE_OPTIONS if kind is SweepKind.EVALUATE else _RECIPE_KEYS
    keys_of = {"the common part": common.keys(), **{f"axis {axis.name}": axis.keys for axis in axes}}
    unknown = [(part, key) for part, keys in keys_of.items() for key in sorted(keys - known)]
    if unknown:
        raise ConfigError("; also: ".join(f"{part}: {_explain_unknown(kind, key)}" for part, key in unknown))
    if not axes:
        raise UserError("nothing varies: name an axis, for example --axis run.seed=0,1,2")
    owners = dict.fromkeys(sets, "--set")
    for axis in axes:
        if both := sorted(axis.keys & owners.keys()):
            raise UserError(f"{owners[both[0]]} and axis {axis.name} both set {both[0]}: leave one of them out")
        owners |= dict.fromkeys(axis.keys, f"axis {axis.name}")


def _explain_unknown(kind: SweepKind, key: str) -> str:
    if key in _OWN_KEYS:
        return f"{key} is set by the sweep itself (its folder: --output FOLDER)"
    if key in _EVALUATE_OPTIONS:
        return f"unknown key '{key}'; it is an option of evaluate: --evaluate"
    if "." not in key and kind is SweepKind.EVALUATE:
        return f"evaluate has no option '{key}' to sweep{did_you_mean(key, _EVALUATE_OPTIONS)}"
    return f"unknown key '{key}'{suggest_key(RunConfig, key)}{SEE_KEYS}"
