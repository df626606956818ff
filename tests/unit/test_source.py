"""The source as text: each default stands once, and a docstring names only what there is."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("protocol", "sandbox", "actors", "learner", "launch")
SOURCES = {path: ast.parse(path.read_text()) for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}

SETTINGS = re.compile(r"(Settings|Options|Arguments|Limits|Table)$")
NEUTRAL = {"None", "True", "False", "0", "0.0", "1", "''", "()"}
"""Defaults that mean no limit, nothing or one: two settings may share them by chance."""
CHANCE = {"device"}
"""``engine.device`` and ``learner.device`` are independent choices of rooms that do not import each other."""


def literal_defaults() -> Iterator[tuple[str, str, str]]:
    """Yield name, literal default and place of each field of a settings or arguments class outside the benches."""
    for path, tree in SOURCES.items():
        for owner in ast.walk(tree):
            if not isinstance(owner, ast.ClassDef) or not SETTINGS.search(owner.name) or "bench" in path.parts:
                continue
            for field in owner.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.value, ast.Constant | ast.UnaryOp):
                    yield ast.unparse(field.target), ast.unparse(field.value), f"{path.relative_to(ROOT)}:{owner.name}"


def test_a_default_is_declared_once() -> None:
    """Of two copies, somebody changes one."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, default, place in literal_defaults():
        if default not in NEUTRAL and name not in CHANCE:
            found[name, default].append(place)
    assert {key: places for key, places in found.items() if len(places) > 1} == {}
