"""Finds calls of a Python test in which text of the agent says which file it opens, or which SQL it runs. Pure.

The text is what the test reads from files other than the tests' own, or gets from a program. It is followed through the
names of a function and those of the module, not through calls.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_OPENERS = frozenset((
    "shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.move", "filecmp.cmp", "sqlite3.connect",
))  # fmt: skip
_SQL = frozenset(("execute", "executescript", "executemany", "sql", "read_sql", "read_sql_query"))
_READS = frozenset(("open", "read_text", "read_bytes", "check_output", "getoutput"))
_NO_PATHS = frozenset(("len", "int", "float", "bool", "sum", "any", "all", "set", "StringIO", "BytesIO", "isinstance"))
"""Functions whose results name no file."""
_TESTS = re.compile(r"/tests(?:/|$)|TEST_DIR")
_MOST_PASSES = 3
"""Maximum number of names through which a text is followed."""
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


class _Names(NamedTuple):
    of_tests: frozenset[str] = frozenset()
    """Names of the tests' own files, and of what is in them."""
    directed: frozenset[str] = frozenset()
    """Names of text of the agent."""
    files: frozenset[str] = frozenset()
    """Names of open files."""


def find_directed_calls(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield each such call once."""
    of_module = [*_nodes_outside_functions(tree)]
    known = _find_names(of_module, _Names())
    seen = dict[int, ast.Call]()
    functions = ([*ast.walk(node)] for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))
    for nodes in (of_module, *functions):
        names = known if nodes is of_module else _find_names(nodes, known)
        seen |= {id(each): each for each in nodes if isinstance(each, ast.Call) and _is_directed(each, names)}
    yield from seen.values()


def _nodes_outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        left += (each for each in ast.iter_child_nodes(node) if not isinstance(each, _FUNCTIONS))


def _find_names(nodes: Iterable[ast.AST], known: _Names) -> _Names:
    """Return what the names that these nodes set stand for, beside those that are known."""
    pairs = [(names, value) for node in nodes for names, value in _assignments(node)]
    files = {
        name for names, value in pairs if isinstance(value, ast.Call) and _last_name(value) == "open" for name in names
    }
    found = known._replace(files=known.files | files)
    for _ in range(_MOST_PASSES):
        of_tests = {name for names, value in pairs if _is_of_tests(value, found) for name in names}
        directed = {name for names, value in pairs if _is_agents(value, found) for name in names}
        found = found._replace(of_tests=found.of_tests | of_tests, directed=found.directed | directed)
    return found


def _assignments(node: ast.AST) -> Iterator[tuple[set[str], ast.expr]]:
    """Yield the names that a node sets, with their value or what it is in."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield {name for target in targets for name in _names_in(target)}, value
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.NamedExpr(target=target, value=value)
            | ast.For(target=target, iter=value)
            | ast.comprehension(target=target, iter=value)
            | ast.withitem(optional_vars=ast.expr() as target, context_expr=value)
        ):
            yield {*_names_in(target)}, value
        case _:
            pass


def _names_in(target: ast.expr) -> Iterator[str]:
    yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))


def _is_directed(call: ast.Call, names: _Names) -> bool:
    named = list[ast.expr]()
    match call.func:
        case ast.Attribute(value=ast.Name(id=module), attr=method) if f"{module}.{method}" in _OPENERS:
            named = call.args[:1]
        case ast.Attribute(attr=method) if method in _SQL:
            named = call.args[:1]
        case ast.Attribute(value=owner, attr="open" | "read_text" | "read_bytes"):
            named = [owner, *call.args[:1]]
        case ast.Name(id="open"):
            named = call.args[:1]
        case _:
            pass
    return any(_is_agents(each, names) and not _is_file(each, names) for each in named)


def _is_file(value: ast.expr, names: _Names) -> bool:
    return isinstance(value, ast.Name) and value.id in names.files


def _is_of_tests(value: ast.expr, names: _Names) -> bool:
    """Return whether an expression names a file of the tests, or has its text."""
    for node in ast.walk(value):
        match node:
            case ast.Name(id=name) if name in names.of_tests or name == "__file__":
                return True
            case ast.Constant(value=str(text)) if _TESTS.match(text):
                return True
            case _:
                pass
    return False


def _is_agents(value: ast.expr, names: _Names) -> bool:
    """Return whether an expression has text of the agent, and none of the tests."""
    if isinstance(value, ast.Compare) or (isinstance(value, ast.Call) and _last_name(value) in _NO_PATHS):
        return False
    return any(_is_source(node, names) for node in ast.walk(value)) and not _is_of_tests(value, names)


def _is_source(node: ast.AST, names: _Names) -> bool:
    match node:
        case ast.Name(id=name):
            return name in names.directed
        case ast.Attribute(attr="stdout"):
            return True
        case ast.Call():
            return _last_name(node) in _READS
        case _:
            return False


def _last_name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
