"""Rewrites the test code of a code task so that it reports to the harness. Pure.

Runs in the sandbox, on any Python from 3.9.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import cast

from sandbox.tasks.code_runner.candidate_server import CANDIDATE_MODULE
from sandbox.tasks.code_runner.object_inference import find_object_calls
from sandbox.tasks.code_runner.tests_parser import inspected_arguments

COUNT_HOOK = "__an_assert_is_near__"
INSPECTED_HOOK = "__a_test_looks_at__"
OBJECT_HOOK = "__a_test_means_an_object__"
IDENTITY_HOOK = "__the_object_itself__"
TYPE_HOOK = "__what_kind_it_is__"


def instrument_tests(tree: ast.Module, functions: set[str], entry: str) -> ast.Module:
    """Return ``tree`` with calls of the hooks.

    ``functions``: the names under which test code calls the candidate; ``entry``: the function that is ``candidate``.
    """
    calls = find_object_calls(tree, entry)
    transformer = _InstrumentedTests(inspected_arguments(tree, functions), functions, calls)
    return ast.fix_missing_locations(transformer.visit(tree))


class _InstrumentedTests(ast.NodeTransformer):
    """Inserts the hooks.

    They report: that an asserting statement is reached; the arguments that the code inspects after a call; the calls
    that must return an object; the objects that it compares by identity; and those whose type it compares or names.
    Imports from the candidate are removed, because its names are already defined.
    """

    def __init__(self, arguments: set[str], functions: set[str], object_calls: list[ast.Call]) -> None:
        self._arguments, self._functions = arguments, functions
        self._object_calls = set(map(id, object_calls))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for block in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, block, None), list):
                setattr(node, block, list(self._counted(cast("list[ast.stmt]", statements))))
        return node

    def _counted(self, statements: list[ast.stmt]) -> Iterator[ast.stmt]:
        for each in statements:
            if _asserts(each):
                yield ast.Expr(ast.Call(ast.Name(COUNT_HOOK, ast.Load()), [], []))
            yield each

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in self._functions:
            node.args = [self._noted(each) for each in node.args]
            for word in node.keywords:
                word.value = self._noted(word.value)
        self.generic_visit(node)
        return _call_hook(OBJECT_HOOK, node) if id(node) in self._object_calls else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if node.attr == "__name__":
            node.value = _typed(node.value)
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        node.left, *node.comparators = map(_typed, (node.left, *node.comparators))
        self.generic_visit(node)
        if any(isinstance(each, (ast.Is, ast.IsNot)) for each in node.ops):
            node.left = _call_hook(IDENTITY_HOOK, node.left)
            node.comparators = [_call_hook(IDENTITY_HOOK, each) for each in node.comparators]
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        return ast.Pass() if node.module == CANDIDATE_MODULE else node

    def _noted(self, node: ast.expr) -> ast.expr:
        return _call_hook(INSPECTED_HOOK, node) if isinstance(node, ast.Name) and node.id in self._arguments else node


def _call_hook(function: str, node: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(function, ast.Load()), [node], [])


def _typed(node: ast.expr) -> ast.expr:
    """Send ``type(x)`` and ``x.__class__`` through the hook: only the candidate knows the types of its objects."""
    if isinstance(node, ast.Attribute) and node.attr == "__class__":
        return _call_hook(TYPE_HOOK, node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type":
        return _call_hook(TYPE_HOOK, node.args[0]) if len(node.args) == 1 else node
    return node


def _asserts(statement: ast.stmt) -> bool:
    """Return whether reaching this statement means that something is tested.

    The body of a loop or a branch may never be reached, so those do not count; but a ``try`` may be about an expected
    error, and ``if got != want: assert False`` is a test.
    """
    tests = [each.test for each in ast.walk(statement) if isinstance(each, ast.Assert)]
    if isinstance(statement, ast.If):
        return any(isinstance(test, ast.Constant) and not test.value for test in tests)
    return isinstance(statement, (ast.Assert, ast.Try)) and bool(tests)
