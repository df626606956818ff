"""Finds state that test code expects to share with the candidate, which two processes do not share.  Pure.

Only certain cases are reported: a seed may be for numbers that the tests draw themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

_STATE = "which does not affect the answer: it runs in a separate process"
_KIND = "which cannot inspect the answer's own objects"

_ALWAYS = frozenset(("os.putenv", "os.unsetenv", "os.chdir", "pytest.warns", "pytest.deprecated_call"))
_PATCHES = frozenset(f"unittest.mock.patch{of}" for of in ("", ".dict", ".multiple", ".object"))
_CHANGED = frozenset(("os.environ", "sys.argv", "sys.stdin", "sys.stdout", "sys.stderr"))
_CHANGES = frozenset(("clear", "pop", "setdefault", "update"))
_KINDS = frozenset(
    f"types.{name}Type" for name in ("AsyncGenerator", "Coroutine", "Function", "Generator", "Lambda", "Method")
) | {"collections.abc.Generator", "typing.Generator"}


def find_shared_state(tree: ast.Module, functions: Collection[str]) -> Iterator[str]:
    """Yield what the tests use and why it does not reach the candidate. ``functions``: the candidate's names."""
    text = _Names(tree)
    calls = [(node, text.name(node.func)) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {name for _, name in calls}
    if "random.seed" in called and not any(name.startswith("random.") for name in called - {"random.seed"}):
        yield f"random.seed, {_STATE}"
    unshared = called & (_ALWAYS | _PATCHES) | set(_changed(tree, text))
    unshared |= {name for node, name in calls if name == "warnings.catch_warnings" and node.keywords}
    yield from (f"{name}, {_STATE}" for name in sorted(unshared))
    inspected = {name for node, name in calls if name.startswith("inspect.") and _names(node.args) & set(functions)}
    kinds = (text.name(kind) for node, name in calls if name == "isinstance" for kind in _kinds(node))
    yield from (f"{name}, {_KIND}" for name in sorted(inspected | (_KINDS & set(kinds))))


def _changed(tree: ast.Module, text: _Names) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield from {text.name(node.value)} & _CHANGED
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield from {text.name(node)} & _CHANGED
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            yield from {text.name(node.func.value)} & _CHANGED


def _kinds(check: ast.Call) -> Iterator[ast.expr]:
    """Yield the classes that an ``isinstance`` call checks for."""
    for kind in check.args[1:]:
        yield from kind.elts if isinstance(kind, ast.Tuple) else [kind]


def _names(nodes: Collection[ast.expr]) -> set[str]:
    return {each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)}


class _Names:
    """Resolves the imported names of test code."""

    def __init__(self, tree: ast.Module) -> None:
        self._imported: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._imported |= {each.asname: each.name for each in node.names if each.asname}
            elif isinstance(node, ast.ImportFrom):
                self._imported |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}

    def name(self, node: ast.expr) -> str:
        """Return the dotted name of an expression, with its module; empty if it has none."""
        if isinstance(node, ast.Attribute):
            base = self.name(node.value)
            return f"{base}.{node.attr}" if base else ""
        return self._imported.get(node.id, node.id) if isinstance(node, ast.Name) else ""
