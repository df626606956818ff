"""Environment variables that a recipe reads, as the scripts do that it follows.

Its table ``[environment]`` names the key that each variable sets.  A variable wins over the recipe's own value of that
key; an option or ``--set`` wins over the variable.  Every use is told, and so is a variable that is set in vain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from launch.config.command_line import format_overrides
from launch.config.loader import key_default, load_recipe, parse_assignment, parse_toml, recipe_variables
from launch.config.run import RunConfig
from protocol.cli.arguments import TypedOverride
from sandbox.providers.settings import ENVIRONMENT, POOL, SandboxSettings

URL_VARIABLES = {POOL: "WORKER_URLS", ENVIRONMENT: "ENVIRONMENT_URLS"}
"""The variable of each provider's servers, which is read where workers are started, whatever the recipe."""
_SWITCHES = {"0": False, "1": True}


class RecipeInEnvironment(NamedTuple):
    """A recipe's configuration in an environment."""

    config: RunConfig
    remarks: tuple[str, ...]
    """Sentences that tell what was taken from which variable, and which variables were not used."""


def load_recipe_in(
    environment: Mapping[str, str], name_or_path: str, overrides: Sequence[str] = ()
) -> RecipeInEnvironment:
    """Read a recipe as :func:`~launch.config.loader.load_recipe` does, with the variables that it reads."""
    variables = recipe_variables(name_or_path)
    given = {parse_assignment(override)[0] for override in overrides}
    used, remarks = dict[str, str](), list[str]()
    for variable, key in variables.items():
        value = environment.get(variable, "").strip()
        if not value:
            continue
        if key in given or key in used:
            remarks.append(f"{variable} is not used: {used.get(key, 'an option')} sets {key}")
            continue
        used[key] = variable
        remarks.append(f"{key} = {value}, from the variable {variable}")
    for variable in _akin(variables, environment):
        remarks.append(f"{variable} sets nothing here: docs/coming-from.md names the key")
    from_variables = [_override(key, environment[variable].strip(), variable) for key, variable in used.items()]
    config = load_recipe(name_or_path, [*from_variables, *overrides])
    if urls := describe_urls_source(config.sandbox, environment):
        remarks.append(urls)
    return RecipeInEnvironment(config, tuple(remarks))


def describe_urls_source(sandbox: SandboxSettings, environment: Mapping[str, str]) -> str:
    """Return a remark if a variable has the URLs of the provider's servers; empty otherwise."""
    variable = URL_VARIABLES.get(sandbox.provider, "")
    configured = environment.get(variable, "")
    return f"sandbox.urls = {configured}, from the variable {variable}" if configured and not sandbox.urls else ""


def _override(key: str, value: str, variable: str) -> TypedOverride:
    match key_default(key):
        case bool():
            typed = _SWITCHES.get(value, parse_toml(value))
        case int() | float():
            typed = parse_toml(value)
        case _:
            typed = value
    (override,) = format_overrides({key: typed})
    return TypedOverride(override, variable)


def _akin(variables: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield variables that are set and begin like several that the recipe reads, such as ``PRM_…``."""
    prefixes = Counter(name.partition("_")[0] for name in variables)
    for name in sorted(environment.keys() - variables.keys()):
        if environment[name] and prefixes[name.partition("_")[0]] > 1:
            yield name
