"""Lists what the names of a Python module are set to, wherever that is: by statements, calls and fixtures. Pure."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MODULE = 0
_FILLERS = frozenset(("append", "add", "extend", "insert", "update", "setdefault", "read", "read_file"))
"""Methods that put into an object what they are given or read."""
_CALLERS = frozenset(("map", "filter"))
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Name(NamedTuple):
    """A name in one scope. An attribute of ``self`` and a function's result are names of the module."""

    scope: int
    """Number of the function that is in no other one, or that of the module."""
    text: str


class Value(NamedTuple):
    """An expression that a name is set to, or that its value is taken from, as from the list of a loop or a tuple."""

    expression: ast.expr
    scope: int
    """The scope of the names in it."""


class AssignedNames:
    """The scopes of a module, its functions and classes, and the values of its names."""

    def __init__(self, tree: ast.Module) -> None:
        self.scopes = [*_find_scopes(tree)]
        """The nodes of the module outside functions, then those of each function that is in no other one."""
        numbered = [(scope, node) for scope, nodes in enumerate(self.scopes) for node in nodes]
        self.functions = defaultdict[str, list[tuple[int, _Function]]](list)
        for scope, node in numbered:
            if isinstance(node, _Function):
                self.functions[node.name].append((scope, node))
        self.classes = {node.name for _, node in numbered if isinstance(node, ast.ClassDef)}
        self.values = defaultdict[Name, list[Value]](list)
        for scope, node in numbered:
            for name, value in self._set_by(node, scope):
                self.values[name].append(value)

    def find(self, text: str, scope: int) -> Name:
        """Return the name that a text stands for in a scope: a parameter that no call gives is a fixture."""
        return Name(scope if Name(scope, text) in self.values else MODULE, text)

    def _set_by(self, node: ast.AST, scope: int) -> Iterator[tuple[Name, Value]]:
        match node:
            case ast.Assign(targets=targets, value=value):
                pairs = [pair for target in targets for pair in _pairs(target, value)]
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.AugAssign(target=target, value=value)
                | ast.NamedExpr(target=target, value=value)
                | ast.For(target=target, iter=value)
                | ast.comprehension(target=target, iter=value)
                | ast.withitem(optional_vars=ast.expr() as target, context_expr=value)
            ):
                pairs = [*_pairs(target, value)]
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in _FILLERS:
                pairs = [*_pairs(owner, node)]
            case _:
                pairs = []
        yield from (
            (Name(MODULE if is_attribute else scope, text), Value(value, scope)) for text, is_attribute, value in pairs
        )
        match node:
            case ast.Call(func=ast.Name(id=caller), args=[ast.Name(id=called), *given]) if caller in _CALLERS:
                yield from self._given(called, given, [], scope)
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(value=ast.Name(id="self" | "cls"), attr=called)):
                yield from self._given(called, node.args, node.keywords, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _set_by_function(node, scope)
            case _:
                pass

    def _given(
        self, called: str, given: Sequence[ast.expr], keywords: Sequence[ast.keyword], scope: int
    ) -> Iterator[tuple[Name, Value]]:
        """Yield what a call gives to the parameters of a function of the module."""
        for inside, function in self.functions.get(called, []):
            names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
            names = names[names[:1] in (["self"], ["cls"]) :]
            pairs = [*zip(names, given, strict=False), *((each.arg, each.value) for each in keywords if each.arg)]
            pairs += ((name, each) for each in given if isinstance(each, ast.Starred) for name in names)
            yield from ((Name(inside, name), Value(value, scope)) for name, value in pairs)


def _set_by_function(function: _Function, scope: int) -> Iterator[tuple[Name, Value]]:
    """Yield the function's results, and the parameters that pytest gives it."""
    for node in ast.walk(function):
        match node:
            case (
                ast.Return(value=ast.expr() as value)
                | ast.Yield(value=ast.expr() as value)
                | ast.YieldFrom(value=value)
            ):
                yield Name(MODULE, function.name), Value(value, scope)
            case _:
                pass
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[names, values, *_]):
                texts = (each.value for each in ast.walk(names) if isinstance(each, ast.Constant))
                for name in (part.strip() for text in texts for part in str(text).split(",")):
                    yield Name(scope, name), Value(values, MODULE)
            case _:
                pass


def _find_scopes(tree: ast.Module) -> Iterator[list[ast.AST]]:
    of_module, functions, left = list[ast.AST](), list[ast.AST](), list[ast.AST]([tree])
    while left:
        node = left.pop()
        if isinstance(node, _Function):
            functions.append(node)
        else:
            of_module.append(node)
            left += ast.iter_child_nodes(node)
    yield of_module
    yield from ([*ast.walk(function)] for function in functions)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, bool, ast.expr]]:
    """Yield the names in a target, whether each is an attribute, and their values."""
    match target, value:
        case ast.Name(id=name), ast.DictComp(key=key):
            yield from ((name, False, value), (f"{name}.keys", False, key))
        case ast.Name(id=name), _:
            yield name, False, value
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name), _:
            yield name, True, value
        case ((ast.Subscript(value=inner) | ast.Starred(value=inner)), _):
            yield from _pairs(inner, value)
        case (
            ast.Tuple(elts=targets),
            ast.Tuple(elts=values) | ast.Call(func=ast.Name(id="zip"), args=values),
        ) if len(targets) == len(values):
            for one, its_value in zip(targets, values, strict=True):
                yield from _pairs(one, its_value)
        case ast.Tuple(elts=[key, more]), ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="items")):
            yield from _pairs(key, ast.Name(f"{name}.keys"))
            yield from _pairs(more, value)
        case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), _):
            for one in targets:
                yield from _pairs(one, value)
        case _:
            pass
