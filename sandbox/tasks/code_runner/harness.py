"""The test program of a code task.  It runs in the sandbox, as root, with any Python from 3.9 and few of its modules.

The candidate runs as ``nobody`` in a process of its own, one for each case, and sees arguments only: expected values
stay here.  Test code is ``nobody``'s too while it runs, in the same working directory, so that files can be shared and
a link of the candidate's leads nowhere else.  What it prints or answers is compared here
(:mod:`sandbox.tasks.code_runner.candidate_client`), so it can neither claim a pass nor read one.  A case of asserts that comes to none,
or never asks the candidate, has failed.  Prints a pytest summary: ``case_0`` …
"""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from collections import deque
from collections.abc import Iterator, KeysView, ValuesView
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

from sandbox.tasks.code_runner.candidate_client import CandidateClient, CandidateProgram
from sandbox.tasks.code_runner.candidate_server import CANDIDATE_MODULE
from sandbox.tasks.code_runner.object_inference import find_class_names, find_object_calls

COUNT_HOOK = "__an_assert_is_near__"
INSPECTED_HOOK = "__a_test_looks_at__"
OBJECT_HOOK = "__a_test_means_an_object__"
IDENTITY_HOOK = "__the_object_itself__"
TYPE_HOOK = "__what_kind_it_is__"
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
MODULES = {
    *("bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "itertools"),
    *("json", "math", "operator", "random", "re", "statistics", "string", "typing"),
}
"""What test code need not import where it takes something of it: a prompt's own imports are often meant."""


def same_text(printed: str, wanted: str) -> bool:
    """White space at the ends of lines and of the text does not count."""
    return [line.rstrip() for line in printed.rstrip().split("\n")] == [
        line.rstrip() for line in wanted.rstrip().split("\n")
    ]


def as_list(value: object) -> object:
    """What gives items in order is a list, as in JSON."""
    if isinstance(value, (list, tuple, range, deque, KeysView, ValuesView, Iterator)):
        return [as_list(each) for each in cast("list[object]", value)]
    return value


def used_names(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def uncalled_tests(tree: ast.Module, entry: str) -> list[str]:
    """Functions that test code only defines, for whoever runs it to call: ``test…()``, and ``check(candidate)`` where
    the candidate's function is known."""
    found: list[str] = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list:
            continue
        others = ast.Module([each for each in tree.body if each is not node], [])
        wants = len(node.args.args) - len(node.args.defaults)
        is_test = node.name.startswith("test") and not wants
        if node.name not in used_names(others) and (is_test or (node.name == "check" and wants == 1 and entry)):
            found.append(node.name)
    return found


def candidate_names(tree: ast.Module) -> set[str]:
    """What test code uses and nothing here has: the candidate's."""
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS):
            bound.add(node.name)
        if isinstance(node, ast.arg):
            bound.add(node.arg)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", "") != CANDIDATE_MODULE:
            bound.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
    return {name for name in used_names(tree) - bound if not hasattr(builtins, name)}


def module_names(tree: ast.Module, names: set[str]) -> set[str]:
    """Of ``names`` those that stand for a module wherever they stand."""
    bases = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    alone = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in bases}
    return (names & MODULES) - alone


def inspected_arguments(tree: ast.Module, functions: set[str]) -> set[str]:
    """Names of arguments that test code compares with literals, and uses for nothing else but calls of ``functions``.

    Only these may a candidate change that answers something too: from them no test computes what is right.
    """
    fine: set[int] = set()
    compared: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            fine.update(map(id, _given(node)))
        if isinstance(node, ast.Assert):
            for compare in (each for each in ast.walk(node.test) if isinstance(each, ast.Compare)):
                names = list(_compared_with_literals(compare))
                fine.update(map(id, names))
                compared.update(name.id for name in names)
    loads = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return compared - {node.id for node in loads if id(node) not in fine}


def compared_names(tree: ast.Module) -> set[str]:
    """Names that test code uses otherwise than calling them."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called}


def _given(call: ast.Call) -> Iterator[ast.Name]:
    """The arguments of a call that are names."""
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


def _through(function: str, node: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(function, ast.Load()), [node], [])


def _typed(node: ast.expr) -> ast.expr:
    """``type(x)`` and ``x.__class__``, which none but the answer can say of its own."""
    if isinstance(node, ast.Attribute) and node.attr == "__class__":
        return _through(TYPE_HOOK, node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type":
        return _through(TYPE_HOOK, node.args[0]) if len(node.args) == 1 else node
    return node


def _asserts(statement: ast.stmt) -> bool:
    """Whether who comes to it has been tested: what a loop or a branch holds may never be reached, but an error may be
    what a ``try`` is about, and ``if got != want: assert False`` is a test."""
    tests = [each.test for each in ast.walk(statement) if isinstance(each, ast.Assert)]
    if isinstance(statement, ast.If):
        return any(isinstance(test, ast.Constant) and not test.value for test in tests)
    return isinstance(statement, (ast.Assert, ast.Try)) and bool(tests)


class InstrumentedTests(ast.NodeTransformer):
    """Test code that says where it comes to a statement that asserts, which arguments it looks at after a call, which
    calls it means to answer objects, what it asks to be the same one, and of which it asks the type to compare or name.
    What it imports of the candidate's is there already."""

    def __init__(self, arguments: set[str], functions: set[str], meant: list[ast.Call]) -> None:
        self.arguments, self.functions = arguments, functions
        self.meant = set(map(id, meant))

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
        if isinstance(node.func, ast.Name) and node.func.id in self.functions:
            node.args = [self._noted(each) for each in node.args]
            for word in node.keywords:
                word.value = self._noted(word.value)
        self.generic_visit(node)
        return _through(OBJECT_HOOK, node) if id(node) in self.meant else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if node.attr == "__name__":
            node.value = _typed(node.value)
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        node.left, *node.comparators = map(_typed, (node.left, *node.comparators))
        self.generic_visit(node)
        if any(isinstance(each, (ast.Is, ast.IsNot)) for each in node.ops):
            node.left = _through(IDENTITY_HOOK, node.left)
            node.comparators = [_through(IDENTITY_HOOK, each) for each in node.comparators]
        return node

    def _noted(self, node: ast.expr) -> ast.expr:
        return _through(INSPECTED_HOOK, node) if isinstance(node, ast.Name) and node.id in self.arguments else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        return ast.Pass() if node.module == CANDIDATE_MODULE else node


def parse_test_code(code: str) -> ast.Module:
    """The test code, in which ``solution.name``, after ``import solution``, is ``name``.  Raises SyntaxError."""
    tree = ast.parse(code)
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    names = {each.asname or each.name for node in imports for each in node.names if each.name == CANDIDATE_MODULE}
    return ast.fix_missing_locations(_Unqualified(names).visit(tree)) if names else tree


class _Unqualified(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        node.names = [each for each in node.names if each.name != CANDIDATE_MODULE]
        return node if node.names else ast.Pass()

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in self._names:
            return ast.Name(node.attr, node.ctx)
        return self.generic_visit(node)


def run_assertions(answer: CandidateClient, code: str, entry: str) -> bool:
    """Run the test code here, as a program, and the functions that it leaves to call; whether it came to a statement
    that asserts, and asked the candidate.

    Each name that it does not define itself is the candidate's, and ``entry`` the function to be checked.
    """
    tree = parse_test_code(code)
    reached: list[None] = []
    names = candidate_names(tree)
    modules = module_names(tree, names)
    wanted = {name: name for name in names - modules}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == CANDIDATE_MODULE:
            wanted.update({alias.asname or alias.name: alias.name for alias in node.names})
    left = uncalled_tests(tree, entry)
    answer.classes = find_class_names(tree)
    space: dict[str, Any] = {}
    for name in modules:
        with suppress(ImportError):
            space[name] = importlib.import_module(name)
    for name, own in wanted.items():
        with suppress(NameError):
            space[name] = answer.get_name(own, name in answer.classes)
    space.update(
        {"__name__": "__main__", COUNT_HOOK: lambda: reached.append(None), INSPECTED_HOOK: answer.note_inspected}
    )
    space.update({OBJECT_HOOK: answer.as_instance, IDENTITY_HOOK: answer.as_identity, TYPE_HOOK: answer.get_type})
    functions = {*wanted, "candidate"}
    answer.types = compared_names(tree)
    whole = ast.fix_missing_locations(
        InstrumentedTests(inspected_arguments(tree, functions), functions, find_object_calls(tree, entry)).visit(tree)
    )
    try:
        exec(compile(whole, "tests", "exec"), space)  # noqa: S102  the task's own tests
        for name in left:
            space[name](*([answer.get_name(entry, is_class=True)] if name == "check" else []))
    except SystemExit as error:
        if error.code:
            raise
    return bool(reached and answer.request_count)


def run_case(candidate: CandidateProgram, kind: str, given: object, wanted: object) -> bool:
    """One case, as :mod:`sandbox.tasks.formats.code_rows` writes them: kind, what is given, what is wanted."""
    if kind == "prints":
        return same_text(candidate.run_with_input(str(given)), str(wanted))
    with closing(candidate.start_server()) as answer:
        if kind == "asserts":
            with candidate.as_candidate_user():
                return run_assertions(answer, str(given), str(wanted or ""))
        name, args = cast("tuple[str, list[object]]", given)
        said = as_list(answer.get_entry_point(name)(*args))
    return said == as_list(wanted) or [said] == as_list(wanted)


def main(folder: Path, program: Path) -> None:
    cases = ast.literal_eval((folder / "cases.txt").read_text(encoding="utf-8"))
    sys.stdout.write("short test summary info\n")
    for number, (kind, given, wanted) in enumerate(cases):
        try:
            good = run_case(CandidateProgram(program), kind, given, wanted)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  the candidate's and the tests' own: this case has failed
            good = False
            sys.stdout.write(f"case_{number}: {type(error).__name__}: {str(error)[:200]!r}\n")
        sys.stdout.write(f"{'PASSED' if good else 'FAILED'} case_{number}\n")
        sys.stdout.flush()
