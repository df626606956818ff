"""Parses the test code of a code task: the names that it takes from the candidate, and its functions to call.

Pure.  Runs in the sandbox too, on any Python from 3.9.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator

from sandbox.tasks.code_runner.candidate_server import CANDIDATE_MODULE

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
MODULES = {
    *("bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "itertools"),
    *("json", "math", "operator", "random", "re", "statistics", "string", "typing"),
}
"""Modules that test code may use without importing them: the prompt's own imports are often meant."""


def parse_test_code(code: str) -> ast.Module:
    """Parse test code; after ``import solution``, ``solution.name`` becomes ``name``.  Raises SyntaxError."""
    tree = ast.parse(code)
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    names = {each.asname or each.name for node in imports for each in node.names if each.name == CANDIDATE_MODULE}
    return ast.fix_missing_locations(_Unqualified(names).visit(tree)) if names else tree


class _Unqualified(ast.NodeTransformer):
    """Removes the imports of the candidate's module and the module's name before its attributes."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        node.names = [each for each in node.names if each.name != CANDIDATE_MODULE]
        return node if node.names else ast.Pass()

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in self._names:
            return ast.Name(node.attr, node.ctx)
        return self.generic_visit(node)


def used_names(tree: ast.Module) -> set[str]:
    """Return every name that the code reads."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def uncalled_tests(tree: ast.Module, entry: str) -> list[str]:
    """Return the functions that test code only defines and leaves to its runner to call.

    These are ``test…()`` and, where ``entry`` names the candidate's function, ``check(candidate)``.
    """
    found: list[str] = []
    uses = [(node, used_names(ast.Module([node], []))) for node in tree.body]
    users = Counter(name for _, names in uses for name in names)
    for node, own in uses:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list:
            continue
        required = len(node.args.args) - len(node.args.defaults)
        is_test = node.name.startswith("test") and not required
        if users[node.name] == (node.name in own) and (is_test or (node.name == "check" and required == 1 and entry)):
            found.append(node.name)
    return found


def candidate_names(tree: ast.Module) -> set[str]:
    """Return the names that test code uses and that neither it nor Python defines: they are the candidate's."""
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS):
            bound.add(node.name)
        if isinstance(node, ast.arg):
            bound.add(node.arg)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", "") != CANDIDATE_MODULE:
            bound.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
    return {name for name in used_names(tree) - bound if not hasattr(builtins, name)}


def imported_candidate_names(tree: ast.Module) -> dict[str, str]:
    """Return the imported names of ``from solution import name as alias``, by alias."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == CANDIDATE_MODULE
        for alias in node.names
    }


def module_names(tree: ast.Module, names: set[str]) -> set[str]:
    """Return those of ``names`` that stand for a standard module everywhere in the code."""
    bases = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    unqualified = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in bases}
    return (names & MODULES) - unqualified


def compared_names(tree: ast.Module) -> set[str]:
    """Return the names that test code uses in another way than calling them."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called}


def inspected_arguments(tree: ast.Module, functions: set[str]) -> set[str]:
    """Return the names of arguments that test code compares with literals and otherwise only passes to ``functions``.

    Only these may a candidate that also returns something change in place: no test computes its expectation from them.
    """
    fine: set[int] = set()
    compared: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            fine.update(map(id, _name_arguments(node)))
        if isinstance(node, ast.Assert):
            for compare in (each for each in ast.walk(node.test) if isinstance(each, ast.Compare)):
                names = list(_compared_with_literals(compare))
                fine.update(map(id, names))
                compared.update(name.id for name in names)
    loads = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return compared - {node.id for node in loads if id(node) not in fine}


def _name_arguments(call: ast.Call) -> Iterator[ast.Name]:
    """Yield the arguments of a call that are plain names."""
    return (each for each in (*call.args, *(word.value for word in call.keywords)) if isinstance(each, ast.Name))


def _compared_with_literals(compare: ast.Compare) -> Iterator[ast.Name]:
    sides = [compare.left, *compare.comparators]
    for side in sides:
        if all(_is_literal(other) for other in sides if other is not side):
            yield from (
                node for node in ast.walk(side) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            )


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True
