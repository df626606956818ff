"""A run's configuration: typed sections, TOML recipes, checks that say how to mend what they refuse.

Importing this loads no torch, ray or sglang, so that ``--help`` and every wrong key answer at once.
"""

from launch.config.loader import RecipeError, load_recipe, load_sft, recipe_names, resolve, resolve_sft
from launch.config.policy import OverlongAction
from launch.config.rollout import DataKind
from launch.config.run import DevicePlacement, NegativeControl, ProofSection, RunConfig
from launch.config.sft import SftConfig
from protocol.settings import ConfigError, dotted_fields

__all__ = [
    "ConfigError",
    "DataKind",
    "DevicePlacement",
    "NegativeControl",
    "OverlongAction",
    "ProofSection",
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
