"""Finds calls of a Python test in which text of the agent says which file it opens, or which SQL it runs. Pure.

What a test names is its own if it is made only of what the module and the tests' own files say, of the names in
folders, and of results of functions that read nothing. All else is the agent's: what is read from another file, or
what a program or an unknown function returns. It is followed through names, attributes of ``self``, fixtures, and
parameters and results of the module's functions, in whatever order they run, and through results of functions in the
tests' other files.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from sandbox.grading.isolation.assigned_names import MODULE, AssignedNames, Name

_OPENERS = {
    "filecmp.cmp": 2,
    **dict.fromkeys(("linecache.getline", "linecache.getlines", "sqlite3.connect"), 1),
    **dict.fromkeys((f"shutil.{name}" for name in ("copy", "copy2", "copyfile", "move")), 1),
    **dict.fromkeys(("xml.etree.ElementTree.parse", "zipfile.ZipFile"), 1),
}
"""Functions that open the files which their first arguments name, with the number of these."""
_SQL = frozenset(("execute", "executescript", "executemany", "sql", "read_sql", "read_sql_query"))
_OPENER_KEYWORDS = frozenset(("file", "filename", "src", "f1", "f2", "database", "sql", "sql_script"))
_READS = frozenset(("open", "read", "read_text", "read_bytes", "readlink", "popen", "input"))
_FILES = frozenset(("open", "ZipFile", "TarFile"))
"""Functions that return an open file, which is no path."""
_NO_PATHS = frozenset(("len", "int", "float", "bool", "sum", "any", "all", "set", "StringIO", "BytesIO", "isinstance"))
"""Functions whose results name no file."""
_PLAIN_MODULES = frozenset((
    "base64", "collections", "contextlib", "copy", "csv", "dataclasses", "datetime", "enum", "functools", "glob",
    "hashlib", "io", "itertools", "json", "math", "operator", "os", "pathlib", "posixpath", "pytest", "random", "re",
    "shutil", "string", "sys", "tempfile", "textwrap", "time", "types", "typing", "unittest", "uuid",
))  # fmt: skip
"""Modules whose functions, but for those above that read, make their results of their arguments."""
_TESTS = re.compile(r"/tests(?:/|$)|TEST_DIR")
_MOST_PASSES = 8
"""Maximum number of names through which a text is followed."""


class OwnTests(NamedTuple):
    """The tests' own files, as one of them may open or import them."""

    files: frozenset[str]
    """Their paths."""
    modules: frozenset[str]
    """The names by which they may import each other."""
    giving: frozenset[str] = frozenset()
    """Names such as ``helpers.load`` of their functions that return text of the agent."""


def find_directed_calls(tree: ast.Module, imported: Mapping[str, str], own: OwnTests) -> Iterator[ast.Call]:
    """Yield such calls; ``imported``: full names of what the module imports."""
    reader = _Reader(AssignedNames(tree), imported, own)
    for scope, nodes in enumerate(reader.names.scopes):
        yield from (node for node in nodes if isinstance(node, ast.Call) and reader.is_directed(node, scope))


def find_giving_functions(tree: ast.Module, imported: Mapping[str, str], own: OwnTests) -> Collection[str]:
    """Return the functions of a module that return text of the agent."""
    reader = _Reader(AssignedNames(tree), imported, own)
    return [name for name in reader.names.functions if Name(MODULE, name) in reader.agents]


class _Reader:
    """Tells the tests' own text and the agent's apart."""

    def __init__(self, names: AssignedNames, imported: Mapping[str, str], own: OwnTests) -> None:
        self.names, self._imported, self._own = names, imported, own
        values = names.values.items()
        self._files = {name for name, given in values if any(_is_file(each.expression) for each in given)}
        self._of_tests, self.agents = set[Name](), set[Name]()
        for _ in range(_MOST_PASSES):
            self._of_tests |= {name for name, given in values if all(self._is_of_tests(*each) for each in given)}
        for _ in range(_MOST_PASSES):
            self.agents |= {name for name, given in values if any(self._is_agents(*each) for each in given)}

    def is_directed(self, call: ast.Call, scope: int) -> bool:
        """Return whether text of the agent says what a call opens or runs."""
        full_name = self._full_name(call.func)
        match call.func:
            case _ if full_name in _OPENERS:
                named = call.args[: _OPENERS[full_name]]
            case ast.Attribute(attr="execute") if _begins_with_own_text(call.args[:1]):
                return False
            case ast.Attribute(attr=method) if method in _SQL:
                named = call.args[:1]
            case ast.Attribute(value=owner, attr="open" | "read_text" | "read_bytes"):
                named = [] if self._is_file(owner, scope) else [owner, *call.args[:1]]
            case ast.Name(id="open"):
                named = call.args[:1]
            case _:
                return False
        by_keyword = (each.value for each in call.keywords if each.arg in _OPENER_KEYWORDS)
        return self._any_agents((*named, *by_keyword), scope)

    def _is_file(self, value: ast.expr, scope: int) -> bool:
        return _is_file(value) or (isinstance(value, ast.Name) and self.names.find(value.id, scope) in self._files)

    def _is_of_tests(self, value: ast.expr, scope: int) -> bool:
        """Return whether an expression mentions a file of the tests."""
        for node in ast.walk(value):
            match node:
                case ast.Name(id=name) if name == "__file__" or self.names.find(name, scope) in self._of_tests:
                    return True
                case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name) if (
                    Name(MODULE, name) in self._of_tests
                ):
                    return True
                case ast.Constant(value=str(text)) if _TESTS.match(text) or text in self._own.files:
                    return True
                case _:
                    pass
        return False

    def _is_agents(self, value: ast.expr, scope: int) -> bool:
        """Return whether an expression has text of the agent."""
        match value:
            case ast.Compare() | ast.Lambda():
                return False
            case ast.Name(id=text):
                name = self.names.find(text, scope)
                if text.endswith(".keys") and name not in self.names.values:
                    name = self.names.find(text.removesuffix(".keys"), scope)
                is_fixture = name not in self.names.values and f"conftest.{text}" in self._own.giving
                return is_fixture or name in self.agents
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=attribute):
                return Name(MODULE, attribute) in self.agents
            case ast.Subscript(value=owner):
                return self._is_agents(owner, scope)
            case ast.IfExp(body=body, orelse=orelse):
                return self._any_agents((body, orelse), scope)
            case ast.Call():
                return _last_name(value) not in _NO_PATHS and self._returns_agents(value, scope)
            case _:
                parts = (each for each in ast.iter_child_nodes(value) if isinstance(each, ast.expr))
                return self._any_agents(parts, scope)

    def _any_agents(self, values: Iterable[ast.expr], scope: int) -> bool:
        return any(map(partial(self._is_agents, scope=scope), values))

    def _returns_agents(self, call: ast.Call, scope: int) -> bool:
        given, parts = [*call.args, *(each.value for each in call.keywords)], self._full_name(call.func).split(".")
        match call.func:
            case _ if _last_name(call) in _READS:
                return not self._is_of_tests(call, scope)
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name) if (
                name in self.names.functions
            ):
                return Name(MODULE, name) in self.agents and not self._is_of_tests(call, scope)
            case _ if len(parts) > 1 and parts[-2] in self._own.modules:
                return ".".join(parts[-2:]) in self._own.giving and not self._is_of_tests(call, scope)
            case _ if parts[0] and parts[0] not in _PLAIN_MODULES | self._own.modules:
                return not self._is_of_tests(call, scope)
            case ast.Name(id=name) if name in self.names.classes or hasattr(builtins, name):
                return self._any_agents(given, scope)
            case ast.Attribute(value=owner):
                return self._any_agents((owner, *given), scope)
            case _:
                return self._any_agents((call.func, *given), scope)

    def _full_name(self, function: ast.expr) -> str:
        """Return the full name of a function that the module imports, or whose module it does; nothing for others."""
        match function:
            case ast.Name(id=name):
                return self._imported.get(name, "")
            case ast.Attribute(value=value, attr=attribute):
                owner = self._full_name(value)
                return f"{owner}.{attribute}" if owner else ""
            case _:
                return ""


def _begins_with_own_text(values: list[ast.expr]) -> bool:
    """Return whether a statement is one that the test chose, whatever it is run on."""
    match values:
        case [ast.JoinedStr(values=[ast.Constant(), *_]) | ast.BinOp(left=ast.Constant())]:
            return True
        case _:
            return False


def _is_file(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _last_name(value) in _FILES


def _last_name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
