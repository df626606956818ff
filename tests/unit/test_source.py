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


ROLE = re.compile(r":(?:class|func|mod|meth|attr|data|exc):`~?([\w.]+)`")


def dotted_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def defined_names(tree: ast.Module | ast.ClassDef) -> set[str]:
    """Names that a module or class imports or defines, members of its classes included."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


MODULES = {dotted_name(path): defined_names(tree) for path, tree in SOURCES.items()}
CLASSES = {node.name: node for tree in SOURCES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
"""Class names are unique, so a docstring may use one without its module."""


def has_member(owner: str, name: str) -> bool:
    """Return whether a class of ours has a member, its own or of one of its bases."""
    if (found := CLASSES.get(owner)) is None:
        return False
    bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in found.bases]
    return name in defined_names(found) or any(has_member(base, name) for base in bases)


def is_resolved(target: str, module: str, package: str) -> bool:
    parts = (f"{package}{target}" if target.startswith(".") else target).split(".")
    count = next((count for count in range(len(parts), 0, -1) if ".".join(parts[:count]) in MODULES), 0)
    names = MODULES[".".join(parts[:count])] if count else MODULES[module] | CLASSES.keys()
    rest = parts[count:]
    if len(rest) > 1 and rest[0] in CLASSES and not has_member(rest[0], rest[1]):
        return False
    return names.issuperset(rest[:1])


def references(tree: ast.Module) -> Iterator[str]:
    """Yield what the docstrings of a module refer to by a role."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                yield from ROLE.findall(text)


def test_a_docstring_refers_to_what_there_is() -> None:
    """A name that was renamed leads its reader nowhere."""
    dead: list[str] = []
    for path, tree in SOURCES.items():
        module = dotted_name(path)
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        dead += [f"{module}: {each}" for each in references(tree) if not is_resolved(each, module, package)]
    assert dead == []
