"""A run's configuration: tables from each room's settings, TOML recipes, and checks whose messages say the remedy.

:mod:`.tables` composes the settings that each room declares, :mod:`.checks` compares them, :mod:`.run` and :mod:`.sft`
are the two configurations, and :mod:`.loader` reads them from recipes and overrides.  Importing this loads no torch,
ray or sglang, so that ``--help`` and every wrong key answer at once.
"""

from launch.config.loader import RecipeError, load_recipe, load_sft, recipe_names, resolve, resolve_sft
from launch.config.run import RunConfig
from launch.config.sft import SftConfig
from protocol.settings import ConfigError, dotted_fields

__all__ = [
    "ConfigError",
    "RecipeError",
    "RunConfig",
    "SftConfig",
    "dotted_fields",
    "load_recipe",
    "load_sft",
    "recipe_names",
    "resolve",
    "resolve_sft",
]
