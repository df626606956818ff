"""The source as text: each default stands once, and docstrings and programs in strings name only what there is."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("protocol", "sandbox", "actors", "learner", "launch")


SETTINGS = re.compile(r"(Settings|Options|Arguments|Limits|Table)$")
NEUTRAL = {"None", "True", "False", "0", "0.0", "1", "''", "()"}
"""Defaults that mean no limit, nothing or one: two settings may share them by chance."""
CHANCE = {"device"}
"""``engine.device`` and ``learner.device`` are independent choices of rooms that do not import each other."""


Trees = dict[Path, ast.Module]


def parse_rooms(*rooms: str) -> Trees:
    return {path: ast.parse(path.read_text()) for room in rooms for path in sorted((ROOT / room).rglob("*.py"))}


@pytest.fixture(scope="module")
def sources() -> Trees:
    """The product's modules."""
    return parse_rooms(*ROOMS)


@pytest.fixture(scope="module")
def tests_and_tools() -> Trees:
    return parse_rooms("tests", "tools")


def literal_defaults(sources: Trees) -> Iterator[tuple[str, str, str]]:
    """Yield name, literal default and place of each field of a settings or arguments class outside the benches."""
    for path, tree in sources.items():
        for owner in ast.walk(tree):
            if not isinstance(owner, ast.ClassDef) or not SETTINGS.search(owner.name) or "bench" in path.parts:
                continue
            for field in owner.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.value, ast.Constant | ast.UnaryOp):
                    yield ast.unparse(field.target), ast.unparse(field.value), f"{path.relative_to(ROOT)}:{owner.name}"


def test_a_default_is_declared_once(sources: Trees) -> None:
    """Duplicated code drifts apart when somebody changes one copy."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, default, place in literal_defaults(sources):
        if default not in NEUTRAL and name not in CHANCE:
            found[name, default].append(place)
    assert {key: places for key, places in found.items() if len(places) > 1} == {}


def test_a_public_class_name_is_unique(sources: Trees, tests_and_tools: Trees) -> None:
    """A name that needs its module to be understood is no name; two classes that do the same belong in one place."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, tree in (sources | tests_and_tools).items():
        if not path.is_relative_to(ROOT / "sandbox" / "datasets"):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


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


class Names:
    """What the product defines; class names are unique, so docstrings may leave their module out."""

    def __init__(self, sources: Trees) -> None:
        self.modules = {dotted_name(path): defined_names(tree) for path, tree in sources.items()}
        nodes = (node for tree in sources.values() for node in ast.walk(tree))
        self.classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}

    def has_member(self, owner: str, name: str) -> bool:
        """Return whether a class of ours has a member, its own or of one of its bases."""
        if (found := self.classes.get(owner)) is None:
            return False
        bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in found.bases]
        return name in defined_names(found) or any(self.has_member(base, name) for base in bases)

    def resolves(self, target: str, module: str, package: str) -> bool:
        """Return whether what a docstring in a module refers to is there."""
        parts = (f"{package}{target}" if target.startswith(".") else target).split(".")
        count = next((count for count in range(len(parts), 0, -1) if ".".join(parts[:count]) in self.modules), 0)
        names = self.modules[".".join(parts[:count])] if count else self.modules[module] | self.classes.keys()
        rest = parts[count:]
        if len(rest) > 1 and rest[0] in self.classes and not self.has_member(rest[0], rest[1]):
            return False
        return names.issuperset(rest[:1])


@pytest.fixture(scope="module")
def names(sources: Trees) -> Names:
    return Names(sources)


def references(tree: ast.Module) -> Iterator[str]:
    """Yield what the docstrings of a module refer to by a role."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                yield from ROLE.findall(text)


def test_references_in_docstrings_exist(sources: Trees, names: Names) -> None:
    """A name that was renamed leads its reader nowhere."""
    dead: list[str] = []
    for path, tree in sources.items():
        module = dotted_name(path)
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        dead += [f"{module}: {each}" for each in references(tree) if not names.resolves(each, module, package)]
    assert dead == []


def imports_in_strings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield module and name of what the programs in the string literals of a module import from our rooms."""
    for text in ast.walk(tree):
        match text:
            case ast.Constant(value=str() as program) if "import " in program:
                with suppress(SyntaxError):
                    for node in ast.walk(ast.parse(textwrap.dedent(program))):
                        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in (*ROOMS, "tests"):
                            yield from ((str(node.module), each.name) for each in node.names)


def test_imports_in_program_strings_exist(sources: Trees, names: Names, tests_and_tools: Trees) -> None:
    """Neither a type checker nor a tool that renames looks into strings."""
    trees, modules = sources | tests_and_tools, names.modules | Names(tests_and_tools).modules
    dead = [
        f"{path.relative_to(ROOT)}: {module}.{name}"
        for path, tree in trees.items()
        for module, name in imports_in_strings(tree)
        if name not in modules.get(module, ()) and f"{module}.{name}" not in modules
    ]
    assert dead == []
