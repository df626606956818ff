"""TOML text of a configuration, as a recipe writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import tomli_w

from launch.config.loader import Toml


def format_recipe(tables: Mapping[str, Mapping[str, Toml]]) -> str:
    """Return tables as the text of a recipe."""
    return tomli_w.dumps(tables)


def format_toml(value: Toml) -> str:
    """Return a value on one line."""
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key)} = {format_toml(each)}" for key, each in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(format_toml, value))}]"
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")  # which TOML wants escaped
