"""Finds where Python tests run code of the agent in their own process, or start its programs as their own user. Pure.

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

_OWN_MODULES = frozenset(("pytest", "_pytest", "pluggy", "ctrf", "packaging", "iniconfig", "rewardkit", "__future__"))
_LOADERS = frozenset((
    "__import__", "eval", "exec", "importlib.import_module", "importlib.machinery.SourceFileLoader",
    "importlib.util.spec_from_file_location", "runpy.run_module", "runpy.run_path", "ctypes.CDLL", "ctypes.cdll",
    "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads", "shelve.open", "sys.path",
))  # fmt: skip
"""What brings code into the process: files that it reads, and modules from a path that the tests change."""
_COMMAND_CRITERIA = ("succeeds", "output_contains", "output_matches", "output_matches_regex")
_STARTERS = frozenset((
    "subprocess.Popen", "subprocess.call", "subprocess.check_call", "subprocess.check_output", "subprocess.run",
    "subprocess.getoutput", "subprocess.getstatusoutput", "os.popen", "os.system", "os.posix_spawn", "os.posix_spawnp",
    "pty.spawn", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "pexpect.spawn", "pexpect.run",
    *(f"rewardkit.{module}command_{what}" for module in ("", "criteria.") for what in _COMMAND_CRITERIA),
    *(f"os.{call}{form}" for call in ("exec", "spawn") for form in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
))  # fmt: skip


class ExposureKind(StrEnum):
    """How code of the agent gets at the tests."""

    IMPORTED = "imported"
    """It runs in the tests' process."""
    STARTED = "started"
    """It runs as the tests' user, who can read the tests and write their reports."""


class Exposure(NamedTuple):
    """One place where tests give code of the agent such power."""

    kind: ExposureKind
    file: str
    line: int
    what: str
    """The module or the call, as the tests write it."""


def find_python_exposures(tests: Mapping[str, bytes]) -> Iterator[Exposure]:
    """Yield every such place in the Python files among the tests, by path."""
    own = frozenset(own_modules(tests))
    for path, data in sorted(tests.items()):
        if path.endswith(".py"):
            yield from _exposures_of(path, data, own)


@lru_cache(maxsize=256)
def _exposures_of(path: str, data: bytes, own: frozenset[str]) -> tuple[Exposure, ...]:
    """Return those of one file: several questions about a task ask for them, and parsing takes most of their time."""
    tree = parse_python(data)
    return () if tree is None else tuple(_exposures(path, tree, own))


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


def _exposures(path: str, tree: ast.Module, own: frozenset[str]) -> Iterator[Exposure]:
    known, aliases = _OWN_MODULES | sys.stdlib_module_names | own, dict(find_aliases(tree))
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from _imported(path, node, [each.name for each in names], known)
            case ast.ImportFrom(module=str(module), level=0):
                yield from _imported(path, node, [module], known)
            case ast.Name() | ast.Attribute():
                name, call = full_name(node, aliases), calls.get(id(node))
                if name in _LOADERS:
                    yield Exposure(ExposureKind.IMPORTED, path, node.lineno, ast.unparse(call or node))
                elif name in _STARTERS and not (call and _is_unprivileged(call)):
                    yield Exposure(ExposureKind.STARTED, path, node.lineno, ast.unparse(call or node))
            case _:
                pass


def _imported(path: str, node: ast.stmt, modules: list[str], known: Collection[str]) -> Iterator[Exposure]:
    for module in modules:
        if module.partition(".")[0] not in known:
            yield Exposure(ExposureKind.IMPORTED, path, node.lineno, f"import {module}")


def find_aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names by which the file calls modules and their functions, with their full names."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((each.asname, each.name) for each in names if each.asname)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from ((each.asname or each.name, f"{module}.{each.name}") for each in names)
            case _:
                pass


def full_name(expression: ast.AST, aliases: Mapping[str, str]) -> str:
    """Return the name of a module's member, such as ``subprocess.run``; the text of another name, or nothing."""
    match expression:
        case ast.Name(id=name):
            return aliases.get(name, name)
        case ast.Attribute(value=value, attr=attr):
            return f"{full_name(value, aliases)}.{attr}"
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
