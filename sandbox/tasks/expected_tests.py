"""Finds the tests that must report: one that is never collected would be missing from the denominator. Pure.

The names are read from ``test_outputs.py`` if that is certain: the file is run as a whole and alone, and its tests are
plain functions and methods. If tests are created in any other way (parameters, fixtures with several values, assigned
or imported names, base classes, hooks), none are expected, and only the report tells which tests there are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import TypeGuard

_FILE = "test_outputs.py"
_SELECTS = re.compile(r"\s(-k|-m|--deselect|--ignore|--lf|--ff)\b|::")
_RUNS_MODULE = re.compile(r"\b(?:(?:python|pypy)[\d.]*|uv +run)(?: +-[A-Za-ln-z]\w*)* +-m +\S+")
"""An interpreter's ``-m``, which names a program; pytest's selects tests."""
_FOLDERS = ("$TEST_DIR", "${TEST_DIR", "/tests", "tests")
_MAKERS = frozenset({"parametrize", "globals", "__test__"})
"""Names whose mention means that a file's functions are not all of its tests."""
_HOOKS = re.compile(r"pytest_\w*(?:generate|collect|makeitem)")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def find_expected_tests(run_tests: str, tests: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the names as pytest reports them, without the file; empty when they are uncertain."""
    if _FILE not in tests or not _runs_only_that_file(run_tests) or _selects(run_tests):
        return ()
    try:
        for helper in (path for path in tests if path.rpartition("/")[2] == "conftest.py"):
            _require_plain_tests(ast.parse(tests[helper]))
        tree = ast.parse(tests[_FILE])
        _require_plain_tests(tree)
        names = tuple(_names(tree.body))
    except (SyntaxError, ValueError, RecursionError, MemoryError, LookupError):
        return ()
    return names if len(set(names)) == len(names) else ()


def _runs_only_that_file(script: str) -> bool:
    """Return whether pytest is called to collect tests from that file and nowhere else."""
    lines = [line for line in script.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]
    calls = [call for line in lines for call in re.split(r"&&|[;|]", line) if "pytest" in call]
    words = [word.strip("\"'") for call in calls for word in call.split()]
    return {word.rpartition("/")[2] for word in words if word.endswith(".py") or word.startswith(_FOLDERS)} == {_FILE}


def _selects(script: str) -> bool:
    return bool(_SELECTS.search(_RUNS_MODULE.sub("", script)))


class _UncertainError(LookupError):
    """The names are uncertain: only a run would tell."""


def _require_plain_tests(tree: ast.Module) -> None:
    """Raise _UncertainError for a file in which something may create tests, or several from one."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(name) | ast.Attribute(attr=name) if name in _MAKERS:
                raise _UncertainError(name)
            case ast.FunctionDef(name) if _HOOKS.match(name):
                raise _UncertainError(name)
            case ast.Call(ast.Name("fixture") | ast.Attribute(attr="fixture"), keywords=given) if any(
                each.arg in ("params", None) for each in given
            ):
                raise _UncertainError("a fixture of several values")
            case _:
                pass


def _names(body: list[ast.stmt], group: str = "") -> Iterator[str]:
    """Yield the names of tests.  Raises _UncertainError."""
    for node in body:
        if isinstance(node, _Function) and node.name.startswith("test"):
            if not any(map(_is_fixture, node.decorator_list)):
                yield group + node.name
        elif _is_plain_group(node) and not group:
            yield from _names(node.body, f"{node.name}::")
        elif not isinstance(node, _Function) and (bound := next(filter(_is_test, _bound(node)), None)):
            raise _UncertainError(bound)


def _is_plain_group(node: ast.stmt) -> TypeGuard[ast.ClassDef]:
    """Return whether this is a class whose test methods are all of its tests."""
    return (
        isinstance(node, ast.ClassDef)
        and node.name.startswith("Test")
        and not (node.bases or node.decorator_list)
        and not any(isinstance(each, _Function) and each.name in ("__init__", "__new__") for each in node.body)
    )


def _is_test(name: str) -> bool:
    return name.startswith(("test", "Test", "*"))


def _is_fixture(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).partition("(")[0].rpartition(".")[2] == "fixture"


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield names that a statement may bind; for a class with bases also theirs, since it may inherit their tests."""
    if isinstance(node, ast.ClassDef) and not node.bases:
        yield node.name
        return
    for each in ast.walk(node):
        match each:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                yield name
            case ast.ClassDef(name, bases):
                yield name
                yield from (ast.unparse(base).rpartition(".")[2] for base in bases)
            case ast.Name(name, ast.Store()):
                yield name
            case ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case _:
                pass
