"""Which tests must report: a test that was never collected is otherwise missing from the denominator.

Read from the test file itself where that is certain: ``test_outputs.py``, run as a whole.  A parametrized test's names
are not certain; then nothing is expected, and the report alone says what there is.  Pure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

_FILE = "test_outputs.py"
_SELECTS = re.compile(r"\s(-k|-m|--deselect|--ignore|--lf|--ff)\b|::")
_RUNS_MODULE = re.compile(r"\b(?:(?:python|pypy)[\d.]*|uv +run)(?: +-[A-Za-ln-z]\w*)* +-m +\S+")
"""An interpreter's ``-m``, which names a program; pytest's selects tests."""


def expected_tests(run_tests: str, tests: Mapping[str, bytes]) -> tuple[str, ...]:
    """Names as pytest reports them, without the file; empty when they are not certain."""
    pytest_lines = [line for line in run_tests.splitlines() if "pytest" in line and not line.lstrip().startswith("#")]
    if _FILE not in tests or not any(_FILE in line for line in pytest_lines) or _selects(run_tests):
        return ()
    try:
        names = tuple(_names(ast.parse(tests[_FILE]).body))
    except (SyntaxError, ValueError, RecursionError, LookupError):
        return ()
    return names if len(set(names)) == len(names) else ()


def _selects(script: str) -> bool:
    return bool(_SELECTS.search(_RUNS_MODULE.sub("", script)))


class _UncertainError(LookupError):
    """Only running it would tell."""


def _names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
            if any("parametrize" in ast.dump(each) for each in node.decorator_list):
                raise _UncertainError(node.name)
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not prefix:
            if node.bases or node.decorator_list:
                raise _UncertainError(node.name)
            yield from _names(node.body, f"{node.name}::")
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)) and "FunctionDef" in ast.dump(node):
            raise _UncertainError("a test under a condition")
        elif isinstance(node, ast.Assign) and any(ast.unparse(each) == "pytestmark" for each in node.targets):
            raise _UncertainError("pytestmark")
