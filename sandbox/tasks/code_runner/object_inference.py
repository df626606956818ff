"""Infers which calls in test code must return an object of the candidate, rather than data.  Pure.

A call must return an object if the code uses its result as no standard type allows: an attribute of that name, or as a
context manager. The result may be used directly, by a name that only calls of one function are assigned to, as an item
of a list of such results, or as an operand. A capitalized name may be a class. One such call shows that it is, and so
do ``isinstance(x, Shape)`` and a change in place of what a call made (``l.append(1)``); then all calls of it return
objects. For any other function only the calls in question do: it may return text in others.

Runs in the sandbox too, on any Python from 3.9.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sandbox.tasks.code_runner.proxies import STANDARD_ATTRIBUTES

_OF_GENERATORS = ("send", "throw", "close")
_PUTTING = frozenset(("add", "append", "appendleft", "extend", "extendleft", "insert", "update"))
_SILENT = frozenset(("clear", "discard", "remove", "reverse", "rotate", "sort"))
"""With _PUTTING: methods of the standard types that return None; code that uses their result means an object."""
_CLASS_CHECKS = ("isinstance", "issubclass", "assertIsInstance")
SOLUTION_CLASS = "Solution"
"""Name of the class in LeetCode's rows."""

_Scopes = tuple[tuple[ast.AST, int], ...]
"""The scopes around a node, outermost first, and the statement of each that contains it."""


class _Given(NamedTuple):
    """A value that is assigned to a name; None if it is unknown."""

    value: ast.expr | None
    statement: int
    is_assignment: bool
    """True if the statement is an assignment, which is always executed if the next statement is."""


def _is_own(attribute: str) -> bool:
    return not (attribute in STANDARD_ATTRIBUTES or attribute in _OF_GENERATORS or attribute.startswith("__"))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _may_be_class(function: ast.expr, entry: str) -> bool:
    name = _last_name(function)
    return (entry if name == "candidate" else name)[:1].isupper()


def find_class_names(tree: ast.Module) -> set[str]:
    """Return the capitalized names that the code calls or, unless all capitals, asks for a non-standard attribute."""
    called = {_last_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    used = {_last_name(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_own(node.attr)}
    return {name for name in called | {name for name in used if not name.isupper()} if name[:1].isupper()}


def find_object_calls(tree: ast.Module, entry: str) -> list[ast.Call]:
    """Return the calls that must return objects.  ``entry``: the function that the code knows as ``candidate``."""
    text = _Text(tree)
    meant: list[ast.Call] = []
    classes = {SOLUTION_CLASS, *_checked_classes(tree)}
    for node, certain in _object_uses(tree):
        calls = text.calls(node)
        functions = {ast.dump(each.func): each.func for each in calls or ()}
        if calls is None or len(functions) != 1:
            continue
        (function,) = functions.values()
        if _may_be_class(function, entry):
            classes.add(ast.unparse(function))
        elif certain:
            meant += calls
    every = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return meant + [each for each in every if ast.unparse(each.func) in classes]


def _object_uses(tree: ast.Module) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the expressions used as objects, and whether that is certain: a change in place may be a list's."""
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_own(node.attr):
            yield node.value, True
        elif isinstance(node, ast.withitem):
            yield node.context_expr, True
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield node.value, False
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in _PUTTING or (name in _SILENT and id(node) not in statements):
                yield node.func.value, False


def _checked_classes(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last_name(node.func) in _CLASS_CHECKS and len(node.args) > 1:
            kinds = node.args[1]
            yield from map(ast.unparse, kinds.elts if isinstance(kinds, ast.Tuple) else [kinds])


class _Text:
    """Finds the calls that may have made the value of an expression."""

    def __init__(self, tree: ast.Module) -> None:
        self._scopes: dict[int, _Scopes] = {}
        self._given: dict[tuple[ast.AST, str], list[_Given]] = {}
        self._unsure: set[str] = set()
        self._visit_all(tree.body, (), tree)

    def calls(self, node: ast.expr, within: frozenset[int] = frozenset()) -> list[ast.Call] | None:
        """Return all such calls (none for a literal), or None if they are unknown."""
        if id(node) in within:
            return []
        within |= {id(node)}
        if isinstance(node, ast.Call):
            return [node]
        if isinstance(node, ast.Constant):
            return []
        if isinstance(node, ast.BinOp):
            return self._all_calls([node.left, node.right], within)
        if isinstance(node, ast.UnaryOp):
            return self.calls(node.operand, within)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            return self._all_calls(self._items(node.value), within)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._all_calls(self._values(node), within)
        return None

    def _all_calls(self, nodes: Iterable[ast.expr | None] | None, within: frozenset[int]) -> list[ast.Call] | None:
        found: list[ast.Call] = []
        for node in [None] if nodes is None else nodes:
            calls = self.calls(node, within) if node else None
            if calls is None:
                return None
            found += calls
        return found

    def _items(self, node: ast.expr) -> list[ast.expr | None] | None:
        """Return the items of a literal list, or of the one list that a name stands for."""
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return list(node.elts)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return [node.elt]
        values = self._values(node) if isinstance(node, ast.Name) else None
        if values and len(values) == 1 and values[0] and not isinstance(values[0], ast.Name):
            return self._items(values[0])
        return None

    def _values(self, node: ast.Name | ast.Attribute) -> list[ast.expr | None] | None:
        """Return the values that a name may have at this node; for ``self.name``, anywhere."""
        scopes, name = self._scopes.get(id(node), ()), ast.unparse(node)
        if name in self._unsure or (isinstance(node, ast.Attribute) and not name.startswith("self.")):
            return None
        if isinstance(node, ast.Attribute):
            return [
                each.value for key, all_given in self._given.items() if key[1] == name for each in all_given
            ] or None
        for depth, (scope, statement) in enumerate(reversed(scopes)):
            if given := self._given.get((scope, name)):
                if depth == 0 and all(each.is_assignment for each in given):
                    given = [each for each in given if each.statement < statement][-1:]
                return [each.value for each in given] or None
        return None

    def _visit_all(self, statements: Sequence[ast.stmt], outer: _Scopes, scope: ast.AST) -> None:
        for number, each in enumerate(statements):
            self._visit(each, (*outer, (scope, number)), is_assignment=isinstance(each, (ast.Assign, ast.AnnAssign)))

    def _visit(self, node: ast.AST, scopes: _Scopes, is_assignment: bool = False) -> None:
        self._scopes[id(node)] = scopes
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._give(target, node.value, scopes, is_assignment)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            self._give(node.target, node.value, scopes, is_assignment)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            self._give(node.target, ast.Subscript(node.iter, ast.Constant(0), ast.Load()), scopes)
        elif isinstance(node, ast.AugAssign):
            self._give(node.target, ast.BinOp(node.target, node.op, node.value), scopes)
        elif isinstance(node, ast.withitem) and node.optional_vars:
            self._give(node.optional_vars, None, scopes)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            self._unsure.update(node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self._unsure.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._unsure.update(alias.asname or alias.name for alias in node.names)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            self._visit_function(node, scopes)
        else:
            for child in ast.iter_child_nodes(node):
                self._visit(child, scopes)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scopes: _Scopes) -> None:
        for part in ast.walk(node.args):
            if isinstance(part, ast.arg):
                self._given.setdefault((node, part.arg), []).append(_Given(None, -1, is_assignment=True))
        for each in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self._visit(each, scopes)
        if isinstance(node, ast.Lambda):
            self._visit(node.body, (*scopes, (node, 0)))
        else:
            for each in node.decorator_list:
                self._visit(each, scopes)
            self._visit_all(node.body, scopes, node)

    def _give(self, target: ast.expr, value: ast.expr | None, scopes: _Scopes, is_assignment: bool = False) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            fit = len(values) == len(target.elts)
            for number, each in enumerate(target.elts):
                self._give(each, values[number] if fit else None, scopes, is_assignment)
        elif isinstance(target, (ast.Name, ast.Attribute)):
            scope, statement = scopes[-1]
            self._given.setdefault((scope, ast.unparse(target)), []).append(_Given(value, statement, is_assignment))
        elif isinstance(target, ast.Starred):
            self._give(target.value, None, scopes)
