"""Finds where Python tests run code of the agent in their own process, start its programs as their own user, or open
what it names. Pure.

It reads the text, so it sees what is written plainly: a module that is not the standard library's, pytest's or the
tests' own is taken for the agent's, and so is each program that is not started as another user by number.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple

from sandbox.grading.isolation.directed_calls import OwnTests, find_directed_calls, find_giving_functions
from sandbox.grading.isolation.python_names import (
    ANY_MEMBER,
    IMPORTERS,
    LOADER_METHODS,
    LOADER_MODULES,
    LOADERS,
    REPLACER_METHODS,
    REPLACERS,
    RUNNERS,
    STARTER_METHODS,
    STARTERS,
    TIMERS,
)

_STARTING_MODULES = frozenset(name.rpartition(".")[0] for name in STARTERS)
_MOST_PASSES = 8
"""Maximum number of files by which a name is passed on from one to the other."""
_OWN_MODULES = frozenset(("pytest", "_pytest", "pluggy", "ctrf", "packaging", "iniconfig", "rewardkit", "__future__"))


class ExposureKind(StrEnum):
    """How code of the agent gets at the tests."""

    IMPORTED = "imported"
    """It runs in the tests' process."""
    STARTED = "started"
    """It runs as the tests' user, who can read the tests and write their reports."""
    DIRECTED = "directed"
    """It does not run, but says which files they open, or which SQL they run."""


class Exposure(NamedTuple):
    """One place where tests give code of the agent such power."""

    kind: ExposureKind
    file: str
    line: int
    what: str
    """The module or the call, as the tests write it."""


def find_python_exposures(tests: Mapping[str, bytes]) -> Iterator[Exposure]:
    """Yield every such place in the Python files among the tests, by path."""
    own = OwnTests(frozenset(tests), frozenset(own_modules(tests)))
    files = {path: data for path, data in sorted(tests.items()) if path.endswith(".py")}
    several = files if len(files) > 1 else {}
    passed_on = frozenset(pair for path, data in several.items() for pair in _passed_on_by(path, data))
    giving = frozenset(name for path, data in several.items() for name in _giving_functions_of(path, data, own))
    for path, data in files.items():
        yield from _exposures_of(path, data, own._replace(giving=giving), passed_on)


@lru_cache(maxsize=256)
def _exposures_of(path: str, data: bytes, own: OwnTests, passed_on: frozenset[tuple[str, str]]) -> tuple[Exposure, ...]:
    """Return those of one file: several questions about a task ask for them, and parsing takes most of their time."""
    tree = parse_python(data)
    try:
        return () if tree is None else tuple(_exposures(path, tree, own, dict(passed_on)))
    except RecursionError:
        return (Exposure(ExposureKind.IMPORTED, path, 1, "code that is nested too deeply to be read"),)


@lru_cache(maxsize=256)
def _passed_on_by(path: str, data: bytes) -> tuple[tuple[str, str], ...]:
    """Return what other files of the tests can import from a file although another module defines it: the name there,
    such as ``helpers.run``, and the full name."""
    if (tree := parse_python(data)) is None:
        return ()
    return tuple((f"{_module_name(path)}.{name}", full) for name, full in _imported_names(tree).items())


@lru_cache(maxsize=256)
def _giving_functions_of(path: str, data: bytes, own: OwnTests) -> tuple[str, ...]:
    """Return the full names of a file's functions that return text of the agent."""
    tree = parse_python(data)
    try:
        found = find_giving_functions(tree, _imported_names(tree), own) if tree else ()
    except RecursionError:
        found = ()
    return tuple(f"{_module_name(path)}.{name}" for name in found)


def _module_name(path: str) -> str:
    file = PurePosixPath(path)
    return file.parent.name if file.stem == "__init__" else file.stem


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Return what a file imports, by the name that it has there, with the full name."""
    return {**{name: name for name in imported_modules(tree)}, **dict(find_aliases(tree))}


def own_modules(tests: Mapping[str, bytes]) -> set[str]:
    """Return the names by which the tests may import each other."""
    files = [PurePosixPath(path) for path in tests if path.endswith(".py")]
    return {part for file in files for part in (*file.parts[:-1], file.stem)}


def parse_python(data: bytes) -> ast.Module | None:
    """Return the parsed file; None if Python cannot read it."""
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _exposures(path: str, tree: ast.Module, own: OwnTests, passed_on: Mapping[str, str]) -> Iterator[Exposure]:
    known = _OWN_MODULES | sys.stdlib_module_names | own.modules
    aliases = {**dict(_starred(tree, passed_on)), **dict(find_aliases(tree))}
    timed = _functions(tree) | _parameters(tree) | aliases.keys()
    reader = _Reader(aliases, passed_on, known, imported_modules(tree) - own.modules, timed, _nodes_of_main(tree))
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from _imported(path, node, [each.name for each in names], known)
            case ast.ImportFrom(module=str(module), names=[ast.alias(name="*")], level=0) if (
                module in LOADER_MODULES - own.modules
            ):
                yield Exposure(ExposureKind.IMPORTED, path, node.lineno, ast.unparse(node))
            case ast.ImportFrom(module=str(module), level=0):
                yield from _imported(path, node, [module], known)
            case (
                ast.Assign(targets=[ast.Name(id="pytest_plugins")], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id="pytest_plugins"), value=ast.expr() as value)
            ):
                yield from _imported(path, node, _texts(value), known)
            case ast.Name() | ast.Attribute() | ast.Subscript() | ast.Call():
                call = calls.get(id(node))
                if kind := reader.kind_of(node, call):
                    yield Exposure(kind, path, node.lineno, ast.unparse(call or node))
            case _:
                pass
    for call in find_directed_calls(tree, _imported_names(tree) | aliases, own):
        yield Exposure(ExposureKind.DIRECTED, path, call.lineno, ast.unparse(call))


class _Reader(NamedTuple):
    """The facts about a file that decide what a name in it stands for."""

    aliases: Mapping[str, str]
    passed_on: Mapping[str, str]
    """Names that other files of the tests have from elsewhere, and their full names."""
    known: Collection[str]
    """Modules that are not the agent's."""
    imported: Collection[str]
    """Modules that the file imports, but for the tests' own."""
    timed: Collection[str]
    """Names that may stand for functions."""
    main: Collection[int]
    """Nodes that run only if the file itself is run."""

    def kind_of(self, node: ast.expr, call: ast.Call | None) -> ExposureKind | None:
        """Return how a name gives code of the agent power, if it does; ``call``: the call of what it names."""
        name = self._original(full_name(node, self.aliases))
        method = "" if isinstance(node, ast.Name) else name.rpartition(".")[2]
        if self._loads(node, name, method, call):
            return ExposureKind.IMPORTED
        if (name in STARTERS or method in STARTER_METHODS) and not (call and _is_unprivileged(call)):
            return ExposureKind.STARTED
        return None

    def _original(self, name: str) -> str:
        """Return the name by which the module that defines it knows what others pass on."""
        for _ in range(_MOST_PASSES):
            parts = name.lstrip(".").split(".")
            found = (at for at in range(len(parts) - 1) if f"{parts[at]}.{parts[at + 1]}" in self.passed_on)
            if (at := next(found, None)) is None:
                break
            name = ".".join((self.passed_on[f"{parts[at]}.{parts[at + 1]}"], *parts[at + 2 :]))
        root, *rest = name.split(".")
        ends = (".".join(rest[at:]) for at in range(len(rest) - 1)) if root in self.imported else ()
        return next((end for end in ends if end in STARTERS), name)

    def _loads(self, node: ast.AST, name: str, method: str, call: ast.Call | None) -> bool:
        module = name.rpartition(".")[0]
        if name in LOADERS or (module in LOADER_MODULES and module.partition(".")[0] in self.imported):
            return True
        if name in RUNNERS:
            return id(node) not in self.main
        if name in TIMERS:
            return not (call and self._times_function(call))
        if name in IMPORTERS:
            named = first_text(call)
            return named is None or self._is_other(named)
        if name in REPLACERS or method in REPLACER_METHODS:
            named = first_text(call)
            return named is not None and "." in named and self._is_other(named)
        needed = LOADER_METHODS.get(method)
        return needed is not None and (not needed or needed in self.imported) and id(node) not in self.main

    def _is_other(self, named: str) -> bool:
        return named.partition(".")[0] not in self.known

    def _times_function(self, call: ast.Call) -> bool:
        """Return whether a call times a function, with no set-up, which would be text."""
        match call:
            case ast.Call(args=[ast.Lambda()]):
                timed = True
            case ast.Call(args=[ast.Name(id=name)]):
                timed = name in self.timed
            case _:
                timed = False
        return timed and all(each.arg != "setup" for each in call.keywords)


def first_text(call: ast.Call | None) -> str | None:
    """Return the text with which the first argument begins, if it is written there."""
    values = [*call.args, *(each.value for each in call.keywords)] if call else []
    while values:
        match values[0]:
            case ast.Constant(value=str(text)) | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
                return text
            case ast.BinOp(left=left, op=ast.Add()):
                values = [left]
            case _:
                return None
    return None


def _starred(tree: ast.Module, passed_on: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the names that a file has by ``import *`` from others of the tests, which have them from elsewhere."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=[ast.alias(name="*")]):
                own = module.rpartition(".")[2]
                yield from ((name.partition(".")[2], name) for name in passed_on if name.partition(".")[0] == own)
            case _:
                pass


def imported_modules(tree: ast.Module) -> set[str]:
    """Return the modules that a file imports, without what is in them."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {each.name.partition(".")[0] for each in names}
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module.partition(".")[0])
            case _:
                pass
    return found


def _functions(tree: ast.Module) -> set[str]:
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _parameters(tree: ast.Module) -> set[str]:
    return {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def _nodes_of_main(tree: ast.Module) -> set[int]:
    """Return the nodes below ``if __name__ == "__main__":``."""
    blocks = (node for node in tree.body if isinstance(node, ast.If))
    bodies = (part for block in blocks if ast.unparse(block.test) == "__name__ == '__main__'" for part in block.body)
    return {id(node) for part in bodies for node in ast.walk(part)}


def _texts(value: ast.expr) -> list[str]:
    return [each.value for each in ast.walk(value) if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def _imported(path: str, node: ast.stmt, modules: list[str], known: Collection[str]) -> Iterator[Exposure]:
    for module in modules:
        if module.partition(".")[0] not in known:
            yield Exposure(ExposureKind.IMPORTED, path, node.lineno, f"import {module}")


def find_aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names by which the file calls modules and their functions, with their full names.

    Of those that it has from ``import *``, only what can run code of the agent.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((each.asname, each.name) for each in names if each.asname)
            case ast.ImportFrom(module=str(module), names=[ast.alias(name="*")], level=0):
                named = (name.rpartition(".") for name in LOADERS | RUNNERS | TIMERS | IMPORTERS | REPLACERS | STARTERS)
                public = {name for parent, _, name in named if parent == module} - _functions(tree)
                yield from ((name, f"{module}.{name}") for name in public)
            case ast.ImportFrom(module=module, names=names, level=level):
                start = f"{'.' * bool(level)}{module or ''}"
                yield from ((each.asname or each.name, f"{start}.{each.name}") for each in names)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name() | ast.Attribute() as value) if (
                module := ast.unparse(value)
            ) in _STARTING_MODULES:
                yield name, module
            case _:
                pass


def full_name(expression: ast.AST, aliases: Mapping[str, str]) -> str:
    """Return the name of a module's member, such as ``subprocess.run``; the text of another name, or nothing."""
    match expression:
        case ast.Name(id=name):
            return aliases.get(name, name)
        case (
            ast.Attribute(value=value, attr=attr)
            | ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(attr)), *_])
            | ast.Subscript(value=ast.Call(func=ast.Name(id="vars"), args=[value]), slice=ast.Constant(value=str(attr)))
            | ast.Subscript(value=ast.Attribute(value=value, attr="__dict__"), slice=ast.Constant(value=str(attr)))
        ):
            return f"{full_name(value, aliases)}.{attr}"
        case ast.Call(func=ast.Name(id="getattr"), args=[value, _, *_]):
            return f"{full_name(value, aliases)}.{ANY_MEMBER}"
        case ast.Call(func=ast.Call(func=getter, args=[ast.Constant(value=str(attr)), *_]), args=[value]) if full_name(
            getter, aliases
        ) in ("operator.attrgetter", "operator.methodcaller"):
            return f"{full_name(value, aliases)}.{attr}"
        case ast.Subscript(value=ast.Attribute(attr="modules") as modules, slice=ast.Constant(value=str(module))) if (
            full_name(modules, aliases) == "sys.modules"
        ):
            return module
        case _:
            return ""


def _is_unprivileged(call: ast.Call) -> bool:
    """Return whether a call starts its program as another user, by number."""
    for keyword in call.keywords:
        match keyword:
            case ast.keyword(arg="user", value=ast.Constant(value=int(user))):
                return user > 0
            case _:
                pass
    return False
