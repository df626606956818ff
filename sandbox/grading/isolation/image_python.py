"""Finds what Python tests need of the image's own Python and pytest, which the toolchain's could not give. Pure.

Without such a need, the toolchain's pytest runs tests whose script starts the image's. The programs that the tests
start are the image's either way. It reads the text. Only modules in which tests find no difference between versions of
Python are no need; tests that look into the image's Python itself, or import what is to be repaired in it, have one.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from sandbox.grading.isolation.pytest_settings import has_pytest_settings
from sandbox.grading.isolation.python_tests import (
    ExposureKind,
    find_aliases,
    find_python_exposures,
    full_name,
    own_modules,
    parse_python,
)

_ALIKE = frozenset((
    "__future__", "abc", "argparse", "array", "base64", "binascii", "bisect", "calendar", "codecs", "collections",
    "concurrent", "configparser", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "enum",
    "errno", "fcntl", "filecmp", "fnmatch", "fractions", "functools", "getpass", "glob", "grp", "gzip", "hashlib",
    "heapq", "hmac", "html", "http", "io", "ipaddress", "itertools", "json", "logging", "math", "mimetypes", "numbers",
    "operator", "os", "pathlib", "pprint", "pty", "pwd", "pytest", "queue", "random", "re", "rewardkit", "select",
    "secrets", "shlex", "shutil", "signal", "socket", "stat", "statistics", "string", "struct", "subprocess", "sys",
    "tarfile", "tempfile", "textwrap", "threading", "time", "traceback", "types", "typing", "urllib", "uuid",
    "warnings", "xml", "zipfile", "zlib",
))  # fmt: skip
_ASKED = frozenset((
    *(f"sys.{name}" for name in ("executable", "version", "version_info", "hexversion", "implementation", "modules")),
    *(f"sys.{name}" for name in ("prefix", "exec_prefix", "base_prefix", "path", "meta_path", "path_hooks")),
    "pytest.importorskip", "pytest.__version__",
))  # fmt: skip
"""What differs between the image's Python and the toolchain's."""
_MARK = "pytest.mark."
_MARKS = frozenset(("parametrize", "skip", "skipif", "xfail", "usefixtures", "filterwarnings"))
_FIXTURES = frozenset((
    "cache", "capfd", "capfdbinary", "caplog", "capsys", "capsysbinary", "doctest_namespace", "monkeypatch",
    "pytestconfig", "record_property", "record_testsuite_property", "record_xml_attribute", "recwarn", "request",
    "tmp_path", "tmp_path_factory", "tmpdir", "tmpdir_factory", "self", "cls",
))  # fmt: skip
_NOSE = frozenset(("setup", "teardown"))
"""Methods that pytest calls before version 8 only."""


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
        aliases = dict(find_aliases(tree))
        for node in ast.walk(tree):
            yield from _imports(node, modules)
            yield from _questions(node, aliases)
            yield from _fixtures(node, fixtures)


def _imports(node: ast.AST, modules: Collection[str]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (f"import {each.name}" for each in names if each.name.partition(".")[0] not in modules)
        case ast.ImportFrom(module=str(module), level=0) if module.partition(".")[0] not in modules:
            yield f"import {module}"
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
        case ast.Constant(value=str(text)) if text.endswith("**"):
            yield f"pattern {text}"
        case _:
            pass


def _fixtures(node: ast.AST, known: Collection[str]) -> Iterator[str]:
    """Yield fixtures and kinds of tests that only plugins or older versions of pytest know."""
    match node:
        case ast.AsyncFunctionDef(name=name) if name.startswith("test"):
            yield f"async def {name}"
        case ast.FunctionDef(name=name) if name in _NOSE:
            yield f"def {name}"
        case ast.FunctionDef(name=name, args=arguments, decorator_list=decorators) if name.startswith("test") or any(
            "fixture" in ast.unparse(each) for each in decorators
        ):
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
