"""Finds what Python tests need of the image's own Python and pytest, which the toolchain's could not give. Pure.

Without such a need, the toolchain's pytest runs tests whose script starts the image's. The programs that the tests
start are the image's either way. It reads the text. Only modules in which tests find no difference between versions of
Python are no need, but for a few names of theirs (``version_differences``); tests that look into the image's Python
itself, import what is to be repaired in it, or make errors of warnings, which differ by version, have one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping

from sandbox.grading.isolation.pytest_settings import has_pytest_settings
from sandbox.grading.isolation.python_tests import (
    ExposureKind,
    find_aliases,
    find_python_exposures,
    first_text,
    full_name,
    imported_modules,
    own_modules,
    parse_python,
)
from sandbox.grading.isolation.version_differences import DIFFERENT_ARGUMENTS, DIFFERENT_METHODS, DIFFERENT_NAMES

_ALIKE = frozenset((
    "__future__", "abc", "argparse", "array", "base64", "binascii", "bisect", "calendar", "codecs", "collections",
    "concurrent", "configparser", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "enum",
    "errno", "fcntl", "filecmp", "fnmatch", "fractions", "functools", "getpass", "glob", "grp", "gzip", "hashlib",
    "heapq", "hmac", "html", "http", "io", "ipaddress", "itertools", "json", "logging", "math", "numbers", "operator",
    "os", "pathlib", "pprint", "pty", "pwd", "pytest", "queue", "random", "re", "rewardkit", "select",
    "secrets", "shlex", "shutil", "signal", "socket", "stat", "statistics", "string", "struct", "subprocess", "sys",
    "tarfile", "tempfile", "textwrap", "threading", "time", "traceback", "types", "typing", "urllib", "uuid",
    "warnings", "xml", "zipfile", "zlib",
))  # fmt: skip
_ASKED = frozenset((
    *(f"sys.{name}" for name in ("executable", "version", "version_info", "hexversion", "implementation", "modules")),
    *(f"sys.{name}" for name in ("prefix", "exec_prefix", "base_prefix", "path", "meta_path", "path_hooks")),
    *(f"sys.{name}" for name in ("api_version", "flags", "getsizeof", "warnoptions", "builtin_module_names")),
    "pytest.importorskip", "pytest.__version__", *DIFFERENT_NAMES,
))  # fmt: skip
"""What differs between the image's Python and the toolchain's."""
_MARK = "pytest.mark."
_MARKS = frozenset(("parametrize", "skip", "skipif", "xfail", "usefixtures", "filterwarnings"))
_FIXTURES = frozenset((
    "cache", "capfd", "capfdbinary", "caplog", "capsys", "capsysbinary", "doctest_namespace", "monkeypatch",
    "pytestconfig", "record_property", "record_testsuite_property", "record_xml_attribute", "request", "tmp_path",
    "tmp_path_factory", "tmpdir", "tmpdir_factory", "self", "cls",
))  # fmt: skip
_NOSE = frozenset(("setup", "teardown"))
"""Methods that pytest calls before version 8 only."""
_CONDITIONS = frozenset(("pytest.mark.skipif", "pytest.mark.xfail"))
_FILTERS = frozenset(("pytest.mark.filterwarnings", "warnings.filterwarnings", "warnings.simplefilter"))
_HARMLESS_FILTER = re.compile(r"(?:always|default|ignore|module|once)(?::[^:]*(?::\w*(?::.*)?)?)?")
"""A filter that makes no error of a warning, nor imports its class."""
_PATTERN = re.compile(r".*\*\*|.+?\(\?[aiLmsux]+\).*", re.DOTALL)
"""A pattern of paths or a regular expression that is another one, or none, in some versions of Python."""


def find_image_need(tests: Mapping[str, bytes]) -> str:
    """Return the first need of the Python files among the tests; empty if there is none."""
    return next(_needs(tests), "")


def _needs(tests: Mapping[str, bytes]) -> Iterator[str]:
    if has_pytest_settings(tests, newest=True):
        yield "settings of pytest"
    yield from (each.what for each in find_python_exposures(tests) if each.kind is ExposureKind.IMPORTED)
    trees = {path: parse_python(data) for path, data in tests.items() if path.endswith(".py")}
    yield from (f"{path} is not readable" for path, tree in trees.items() if tree is None)
    parsed = [tree for tree in trees.values() if tree is not None]
    modules = _ALIKE | own_modules(tests)
    fixtures = _FIXTURES | {name for tree in parsed for name in _given_names(tree)}
    for tree in parsed:
        aliases, imported = dict(find_aliases(tree)), imported_modules(tree)
        for node in ast.walk(tree):
            yield from _imports(node, modules)
            yield from _questions(node, aliases)
            yield from _differences(node, aliases, imported)
            yield from _fixtures(node, fixtures)


def _imports(node: ast.AST, modules: Collection[str]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (f"import {each.name}" for each in names if each.name.partition(".")[0] not in modules)
        case ast.ImportFrom(module=str(module), level=0) if module.partition(".")[0] not in modules:
            yield f"import {module}"
        case ast.ImportFrom(module=str(module), names=names, level=0):
            yield from (name for name in (module, *(f"{module}.{each.name}" for each in names)) if name in _ASKED)
        case _:
            pass


def _questions(node: ast.AST, aliases: Mapping[str, str]) -> Iterator[str]:
    """Yield what the node asks the Python or pytest that runs the tests, or expects of them."""
    match node:
        case ast.Name(id="pytest_plugins"):
            yield "pytest_plugins"
        case ast.Name() | ast.Attribute():
            name = full_name(node, aliases)
            if name in _ASKED or (name.startswith(_MARK) and name.removeprefix(_MARK).partition(".")[0] not in _MARKS):
                yield name
        case ast.Constant(value=str(text)) if _PATTERN.fullmatch(text):
            yield f"pattern {text}"
        case _:
            pass


def _differences(node: ast.AST, aliases: Mapping[str, str], imported: Collection[str]) -> Iterator[str]:
    """Yield methods, calls and tests that have another effect in some versions of Python or pytest, or none."""
    match node:
        case ast.Attribute(attr=method) if DIFFERENT_METHODS.get(method) in imported:
            yield f".{method}"
        case ast.Call(func=function) if _differs(node, full_name(function, aliases)):
            yield ast.unparse(node)
        case ast.FunctionDef(name=name) if _is_test(node) and any(map(_gives_value, _own_nodes(node))):
            yield f"{name} returns a value"
        case _:
            pass


def _differs(call: ast.Call, name: str) -> bool:
    text = first_text(call) or ""
    if name in _FILTERS:
        return not _HARMLESS_FILTER.fullmatch(text)
    if name in _CONDITIONS:
        return bool(text and call.args)  # the text is code
    named = {each.arg for each in call.keywords} & DIFFERENT_ARGUMENTS.get(name, frozenset())
    shuffled_by = name == "random.shuffle" and len(call.args) > 1
    return bool(named) or shuffled_by or (name.endswith(".addinivalue_line") and text == "filterwarnings")


def _is_test(function: ast.FunctionDef) -> bool:
    return function.name.startswith("test") and not _is_fixture(function)


def _is_fixture(function: ast.FunctionDef) -> bool:
    return any("fixture" in ast.unparse(each) for each in function.decorator_list)


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions and classes in it."""
    left: list[ast.AST] = [*function.body]
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            left += ast.iter_child_nodes(node)


def _gives_value(node: ast.AST) -> bool:
    """Return whether a test with this node fails in some versions of pytest, and passes with a warning in others."""
    match node:
        case ast.Return(value=None | ast.Constant(value=None)):
            return False
        case _:
            return isinstance(node, ast.Return | ast.Yield | ast.YieldFrom)


def _fixtures(node: ast.AST, known: Collection[str]) -> Iterator[str]:
    """Yield fixtures and kinds of tests that only plugins or older versions of pytest know."""
    match node:
        case ast.AsyncFunctionDef(name=name) if name.startswith("test"):
            yield f"async def {name}"
        case ast.FunctionDef(name=name) if name in _NOSE:
            yield f"def {name}"
        case ast.FunctionDef(name=name, args=arguments) if name.startswith("test") or _is_fixture(node):
            required = [*arguments.posonlyargs, *arguments.args][: -len(arguments.defaults) or None]
            yield from (f"fixture {each.arg}" for each in required if each.arg not in known)
        case ast.Call(func=ast.Attribute(attr="usefixtures"), args=names):
            used = [each.value for each in names if isinstance(each, ast.Constant)]
            yield from (f"fixture {name}" for name in used if name not in known)
        case _:
            pass


def _given_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of functions, which may be fixtures, and of parameters."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name):
                yield name
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[names, *_]):
                texts = [each.value for each in ast.walk(names) if isinstance(each, ast.Constant)]
                yield from (name.strip() for text in texts if isinstance(text, str) for name in text.split(","))
            case _:
                pass
