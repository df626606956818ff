"""Writes configurations as TOML, as a recipe does."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

import tomli_w

from launch.config.loader import Toml
from protocol.cli.output import JsonOutput
from protocol.plain_text import escape_controls


def print_toml(values: Mapping[str, object], out: JsonOutput) -> None:
    """Print what a dry run shows on standard output: TOML, or one object with ``--json``."""
    out.set_result(values)
    if not out.enabled:
        sys.stdout.write(escape_controls(tomli_w.dumps(values)))


def format_toml(value: Toml) -> str:
    """Return a value on one line."""
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key)} = {format_toml(each)}" for key, each in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(format_toml, value))}]"
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")  # which TOML wants escaped
