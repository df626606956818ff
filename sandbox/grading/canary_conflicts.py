"""Finds what in honest tests rules canaries out: hooks that would count them, or a pytest that ends early.  Pure.

It reads the text, so it sees what is written plainly.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from sandbox.grading.isolation.python_tests import find_aliases, full_name, parse_python
from sandbox.tasks.task import Task

_COUNTING_HOOKS = re.compile(rb"pytest_(?:runtest_\w*|pyfunc_call|exception_interact)")
_EXIT_AT_TIMEOUT = re.compile(
    rb"""timeout[_-]method["']?(?:[ \t]*+=|\t*+[ ])[ \t]*+["']?thread|"""
    rb"""mark\.timeout\((?>(?:(?!mark\.timeout\()[^)])*?["']thread["'])(?:(?!mark\.timeout\()[^)])*+\)"""
)
"""pytest-timeout ends the process of a test that it cannot interrupt."""
_NO_FILES = re.compile(rb"\bulimit[ \t]+-f[ \t]+0\b")
_LIMITED_FILES = re.compile(rb"setrlimit\(\s*(?:\w+\.)?RLIMIT_FSIZE\b")
"""Then pytest cannot record its end, unless the limit is only for programs that it starts."""
_ONLY_FOR_PROGRAMS = b"preexec_fn"
_PATTERNS = (
    (b"pytest_", _COUNTING_HOOKS),
    (b"thread", _EXIT_AT_TIMEOUT),
    (b"ulimit", _NO_FILES),
    (b"setrlimit", _LIMITED_FILES),
)
"""Each with a word of all that it matches: data of megabytes are searched for words in a hundredth of the time."""
_ENDS = {"os._exit", "os.abort", *(f"os.exec{form}" for form in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe"))}


def find_canary_conflict(task: Task) -> str:
    """Return what rules canaries out of a task's tests, and where; empty if nothing does."""
    return next(_find_conflicts(task), "")


def _find_conflicts(task: Task) -> Iterator[str]:
    for path, data in (("its script", task.run_tests.encode()), *sorted(task.tests.items())):
        for found in (pattern.search(data) for word, pattern in _PATTERNS if word in data):
            if found is None or (found.re is _LIMITED_FILES and _ONLY_FOR_PROGRAMS in data):
                continue
            yield f"{found[0].decode(errors='replace')} in {path}"
        if path.endswith(".py") and (tree := parse_python(data)) is not None:
            aliases = dict(find_aliases(tree))
            names = (full_name(node.func, aliases) for node in _run_by_pytest(tree) if isinstance(node, ast.Call))
            yield from (f"{name} in {path}" for name in names if name in _ENDS)


def _run_by_pytest(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of the module itself and of its hooks, not those of tests and other functions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Lambda():
                continue
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if not name.startswith("pytest_"):
                continue
            case _:
                yield node
                waiting += ast.iter_child_nodes(node)
