"""Builds a :class:`~launch.config.run.RunConfig` from a recipe and overrides.

A recipe is a TOML file with the values that differ from the defaults.  Overrides come last and look like the file:
``rollout.group_size=4``, ``run.mode=sync``, ``learner.betas=[0.9,0.99]``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

from pydantic import ValidationError

from actors.agents.settings import kind_has_prompt
from launch.config.run import RunConfig
from launch.config.sft import SftConfig
from protocol.cli.arguments import LowerBound, TypedOverride
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.settings import ConfigError, ConfigSection, dotted_fields, explain_errors, suggest_key

RECIPES = Path(__file__).resolve().parent.parent / "recipes"

_ENVIRONMENT = "environment"
"""The table of a recipe that names the environment variables it reads."""

SEE_KEYS = " (to see the keys: `longshore cluster demo --dry-run`)"
_SEE_SFT_KEYS = " (to see the keys: `longshore sft --dry-run`)"

C = TypeVar("C", bound=ConfigSection)

Toml: TypeAlias = "str | int | float | bool | list[Toml] | dict[str, Toml]"


class RecipeError(UserError):
    """The recipe does not exist."""


def recipe_names() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a recipe by its name, or by the path of a TOML file.  Raises ConfigError or RecipeError."""
    values = _read_recipe(_recipe_path(name_or_path), f"the recipes are {_names()}")
    values.pop(_ENVIRONMENT, None)
    _drop_prompt_of_another_kind(values, overrides)
    return resolve(values, overrides, source=f"recipe {name_or_path}")


def _drop_prompt_of_another_kind(values: dict[str, Toml], overrides: Sequence[str]) -> None:
    """Remove a recipe's first prompt where an override chooses another kind of agent that has one of its own: the
    recipe's describes the actions of its own agent.  Raises ConfigError."""
    given = dict(map(parse_assignment, overrides))
    agent, kind = values.get("agent"), given.get("agent.kind")
    if isinstance(agent, dict) and kind != agent.get("kind") and kind_has_prompt(kind):
        for key in ("prompt", "system_prompt"):
            agent.pop(key, None)


def recipe_variables(name_or_path: str) -> dict[str, str]:
    """Return the environment variables that a recipe reads, each with the key that it sets.  Raises ConfigError or
    RecipeError."""
    table = _read_recipe(_recipe_path(name_or_path), f"the recipes are {_names()}").get(_ENVIRONMENT, {})
    if not isinstance(table, dict):
        raise ConfigError(f"recipe {name_or_path}: '{_ENVIRONMENT}' must be a table, [{_ENVIRONMENT}], not {table!r}")
    known, variables = set(dotted_fields(RunConfig)), dict[str, str]()
    for variable, key in table.items():
        if not isinstance(key, str) or key not in known:
            raise ConfigError(
                f"recipe {name_or_path}: [environment] {variable} = {key!r} is no key"
                f"{suggest_key(RunConfig, str(key))}{SEE_KEYS}"
            )
        variables[variable] = key
    return variables


def load_sft(path: Path | None, overrides: Sequence[str] = ()) -> SftConfig:
    """Read a TOML file of supervised training, if there is one.  Raises ConfigError or RecipeError."""
    values = {} if path is None else _read_recipe(path, "write one with `longshore sft --dry-run`")
    return resolve_sft(values, overrides, source="options" if path is None else f"recipe {path}")


def _read_recipe(path: Path, remedy: str) -> dict[str, Toml]:
    """Return the tables of a recipe; ``run.name`` defaults to the file's name.  Raises ConfigError or RecipeError."""
    try:
        values = read_toml(path)
    except OSError as error:
        raise RecipeError(f"cannot read the recipe {path}: {error.strerror}; {remedy}") from error
    run = values.setdefault("run", {})
    if isinstance(run, dict):
        run.setdefault("name", path.stem)
    return values


def read_toml(path: Path) -> dict[str, Toml]:
    """Return the tables of a file.  Raises OSError, and ConfigError for what is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def parse_toml(raw: str) -> Toml:
    """Parse a value of TOML; anything else is text."""
    try:
        return cast("Toml", tomllib.loads(f"value = {raw}")["value"])
    except tomllib.TOMLDecodeError:
        return raw


def resolve(values: Mapping[str, Toml], overrides: Sequence[str] = (), *, source: str = "config") -> RunConfig:
    """Apply ``overrides`` to ``values`` and check the result.  Raises ConfigError that names ``source``."""
    return _resolve(RunConfig, SEE_KEYS, values, overrides, source)


def resolve_sft(values: Mapping[str, Toml], overrides: Sequence[str] = (), *, source: str = "config") -> SftConfig:
    """Do the same for supervised training."""
    return _resolve(SftConfig, _SEE_SFT_KEYS, values, overrides, source)


def _resolve(model: type[C], see_keys: str, values: Mapping[str, Toml], overrides: Sequence[str], source: str) -> C:
    options: dict[str, str] = {}
    merged = {key: dict(value) if isinstance(value, dict) else value for key, value in values.items()}
    for override in overrides:
        key, value = parse_override(override, model, see_keys)
        if isinstance(override, TypedOverride):
            options[key] = override.option
        else:
            options.pop(key, None)
        section, _, field = key.partition(".")
        table = merged.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{source}: '{section}' must be a table, [{section}], not {table!r}")
        if isinstance(override, LowerBound):
            value = _raise_to(value, table.get(field, _default(model, section, field)))
        table[field] = value
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise explain_errors(model, error, source, see_keys, options) from error


def _raise_to(bound: Toml, given: Toml) -> Toml:
    """Return ``given``, or ``bound`` if that is a higher number."""
    is_lower = isinstance(given, int | float) and isinstance(bound, int | float) and given < bound
    return bound if is_lower else given


def key_default(key: str) -> Toml:
    """Return the default of ``section.key``."""
    section, _, field = key.partition(".")
    return _default(RunConfig, section, field)


def _default(model: type[ConfigSection], section: str, field: str) -> Toml:
    return cast("type[ConfigSection]", model.model_fields[section].annotation).model_fields[field].default


def parse_override(text: str, model: type[ConfigSection] = RunConfig, see_keys: str = SEE_KEYS) -> tuple[str, Toml]:
    """Return key and value of ``section.key=value``.  Raises ConfigError, also for an unknown key."""
    key, value = parse_assignment(text)
    if key not in set(dotted_fields(model)):
        raise ConfigError(f"--set {text}: unknown key '{key}'{suggest_key(model, key)}{see_keys}")
    return key, value


def parse_assignment(text: str) -> tuple[str, Toml]:
    """Return key and value of ``key=value``; a value that is not TOML is a string.  Raises ConfigError."""
    key, equals, raw = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise ConfigError(f"--set {text}: write it as section.key=value, for example --set run.seed=12")
    return key, parse_toml(raw)


def flatten_tables(tables: Mapping[str, Toml]) -> dict[str, Toml]:
    """Return the keys of tables as ``section.key`` → value, and all others as they are."""
    flat: dict[str, Toml] = {}
    for name, value in tables.items():
        flat |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _recipe_path(name_or_path: str) -> Path:
    if name_or_path.endswith(".toml") or "/" in name_or_path:
        return Path(name_or_path)
    known = recipe_names()
    if name_or_path not in known:
        raise RecipeError(
            f"no recipe is called '{name_or_path}'; the recipes are {_names()}, and a file of your own is given by its "
            f"path, ending in .toml{did_you_mean(name_or_path, known)}"
        )
    return RECIPES / f"{name_or_path}.toml"


def _names() -> str:
    return ", ".join(recipe_names()) or "none"
