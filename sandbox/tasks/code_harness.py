"""The test program of a code task.  It runs in the sandbox, as root, with any Python from 3.9 and few of its modules.

The candidate runs as ``nobody`` in a process of its own and sees arguments only: expected values stay here.  What it
prints or answers is compared here, so it can neither claim a pass nor read one.  A case of asserts that comes to none,
or never asks the candidate, has failed.  Prints a pytest summary: ``case_0`` …
"""

from __future__ import annotations

import ast
import builtins
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

MODULE = "solution"
"""What test code may import the candidate's functions from."""
COUNT = "__an_assert_is_near__"
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
CASE_S = 10.0
ANSWER_BYTES = 16 << 20
NOBODY = 65534
CALL = """
import ast, os, sys
name, args, kwargs = ast.literal_eval(sys.stdin.read())
out = os.fdopen(int(sys.argv[2]), "w")
sys.stdin = open(os.devnull)
space = {"__name__": "solution"}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), space)
found = space[name] if name in space else getattr(space["Solution"](), name)
try:
    answer = ("value", found(*args, **kwargs))
except Exception as error:
    answer = ("error", type(error).__name__)
out.write(repr(answer))
"""


class CandidateError(Exception):
    """The candidate gave no answer that can be compared."""


class Candidate:
    """A copy of the program that ``nobody`` may read, in a folder of its own."""

    def __init__(self, program: Path) -> None:
        self.folder = Path("/tmp") / os.urandom(8).hex()  # noqa: S108  an unguessable name: mkdir fails if it exists
        self.folder.mkdir()
        self.folder.chmod(0o755)
        self.program = self.folder / "solution.py"
        self.program.write_bytes(program.read_bytes())
        self.program.chmod(0o644)

    def _run(self, arguments: Sequence[str], text: str, answer: Sequence[int] = ()) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            input=text.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder), "LANG": "C.UTF-8"},
            timeout=CASE_S,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            start_new_session=True,
            pass_fds=answer,
            check=False,
        )
        return done.stdout.decode(errors="replace")

    def prints(self, text: str) -> str:
        """What the program prints for ``text`` on its standard input."""
        return self._run([str(self.program)], text)

    def call(self, name: str, args: object, kwargs: Mapping[str, object]) -> object:
        """What its function answers, as a literal; raises what it raises, if Python itself has that exception."""
        answer = os.memfd_create("answer")
        try:
            self._run(["-c", CALL, str(self.program), str(answer)], repr((name, args, kwargs)), [answer])
            text = os.pread(answer, ANSWER_BYTES, 0)
        finally:
            os.close(answer)
        try:
            kind, value = ast.literal_eval(text.decode())
        except (ValueError, SyntaxError, TypeError) as error:
            raise CandidateError(name) from error
        if kind == "error":
            known: object = getattr(builtins, str(value), None)
            raise (known if isinstance(known, type) and issubclass(known, Exception) else CandidateError)(value)
        return value


def same_text(printed: str, wanted: str) -> bool:
    """White space at the ends of lines and of the text does not count."""
    return [line.rstrip() for line in printed.rstrip().split("\n")] == [
        line.rstrip() for line in wanted.rstrip().split("\n")
    ]


def listed(value: object) -> object:
    """Tuples are lists, as in JSON."""
    if isinstance(value, (list, tuple)):
        return [listed(each) for each in cast("list[object]", value)]
    return value


def used_names(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def left_to_call(tree: ast.Module, entry: str) -> list[str]:
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


class Counted(ast.NodeTransformer):
    """Test code that says so where it comes to a statement that asserts.  What it imports of the candidate's is there
    already."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for block in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, block, None), list):
                setattr(node, block, list(self._counted(cast("list[ast.stmt]", statements))))
        return node

    def _counted(self, statements: list[ast.stmt]) -> Iterator[ast.stmt]:
        for each in statements:
            if not isinstance(each, DEFINITIONS) and any(isinstance(part, ast.Assert) for part in ast.walk(each)):
                yield ast.Expr(ast.Call(ast.Name(COUNT, ast.Load()), [], []))
            yield each

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        return ast.Pass() if node.module == MODULE else node


def asserted(candidate: Candidate, code: str, entry: str) -> bool:
    """Run the test code here, as a program, and the functions that it leaves to call; whether it came to a statement
    that asserts, and asked the candidate.

    Each name that it does not define itself is a function of the candidate's, and ``entry`` the one to be checked.
    """
    tree = ast.parse(code)
    reached: list[None] = []
    asked: list[str] = []

    def remote(name: str) -> Callable[..., object]:
        def ask(*args: object, **kwargs: object) -> object:
            asked.append(name)
            return candidate.call(name, args, kwargs)

        return ask

    space: dict[str, Any] = {name: remote(name) for name in used_names(tree) if not hasattr(builtins, name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == MODULE:
            space.update({alias.asname or alias.name: remote(alias.name) for alias in node.names})
    space.update({"__name__": "__main__", COUNT: lambda: reached.append(None)})
    left = left_to_call(tree, entry)
    whole = ast.fix_missing_locations(Counted().visit(tree))
    try:
        exec(compile(whole, "tests", "exec"), space)  # noqa: S102  the task's own tests
        for name in left:
            space[name](*([remote(entry)] if name == "check" else []))
    except SystemExit as error:
        if error.code:
            raise
    return bool(reached and asked)


def passed(candidate: Candidate, kind: str, given: object, wanted: object) -> bool:
    """One case, as :mod:`sandbox.tasks.code` writes them: kind, what is given, what is wanted."""
    if kind == "prints":
        return same_text(candidate.prints(str(given)), str(wanted))
    if kind == "asserts":
        return asserted(candidate, str(given), str(wanted or ""))
    name, args = cast("tuple[str, list[object]]", given)
    answer = listed(candidate.call(name, args, {}))
    return answer == listed(wanted) or [answer] == listed(wanted)


def main(folder: Path, program: Path) -> None:
    cases = ast.literal_eval((folder / "cases.txt").read_text(encoding="utf-8"))
    sys.stdout.write("short test summary info\n")
    for number, (kind, given, wanted) in enumerate(cases):
        try:
            good = passed(Candidate(program), kind, given, wanted)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  the candidate's and the tests' own: this case has failed
            good = False
            sys.stdout.write(f"case_{number}: {type(error).__name__}: {str(error)[:200]!r}\n")
        sys.stdout.write(f"{'PASSED' if good else 'FAILED'} case_{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
