"""A bug of a repository that its row holds whole: the original patch makes it out of nothing. Pure.

Its sandbox is longshore's base image with the repository, bug included, in ``/app``, where no history says what was
changed.  The hidden tests are the repository's own before the bug, run from ``/tests`` by the toolchain's pytest: what
the agent does to those in ``/app`` counts for nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from sandbox.tasks.formats.swe_bugs.tests_files import files_of_tests, is_tests_file
from sandbox.tasks.sites.site_services import TOOLCHAIN_PYTHON
from sandbox.tasks.task import BASE_IMAGE, Task
from sandbox.tasks.unified_diff import PatchError, apply_patch, changed_modes

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""Git's name of a tree without files: the base commit of such a repository."""
_REPORT = "/logs/verifier/ctrf.json"
_RUN = (
    "#!/bin/bash\n%s"
    f"uvx -p 3.13 -w pytest==8.4.1 -w pytest-json-ctrf==0.3.5 pytest --ctrf {_REPORT} %s -rA --tb=short\n"
)
_SHOW_CHANGES = (Path(__file__).parent / "show_changes.py").read_text("utf-8")
_START = "/var/lib/start"
_SETUP = f"%smkdir -p /var/lib && cp -R /app {_START}\n"
SHOW_PATCH = f"{TOOLCHAIN_PYTHON} -I -B -c {quote(_SHOW_CHANGES)} {_START} /app"
"""Prints what the agent has changed, and fails if that cannot be told whole."""
_COPY = "cp -R /solution/app/. /app/\n"


def build_task(task: Task, gold_patch: str, bug_patch: str, tests: Sequence[str]) -> Task:
    """Return ``task`` with the repository, its tests and its solution.  Raises PatchError."""
    try:
        right = apply_patch(gold_patch, {})
    except PatchError as error:
        raise PatchError(f"original.gold_patch {error}") from error
    try:
        wrong = apply_patch(bug_patch, right)
    except PatchError as error:
        raise PatchError(f"bug.patch {error}") from error
    hidden = {path: text for path, text in right.items() if is_tests_file(path) and wrong.get(path) == text}
    files = files_of_tests(tests)
    if missing := sorted(set(files) - hidden.keys()):
        raise PatchError(f"bug.patch changes the tests, or original.gold_patch lacks them: {', '.join(missing)}")
    modes = {path: executable for path, executable in changed_modes(gold_patch).items() if path in right}
    programs = [path for path, executable in modes.items() if executable]
    wrong_modes = modes | changed_modes(bug_patch)
    added = [f"rm -f {quote(f'/app/{path}')}\n" for path in sorted(wrong.keys() - right.keys())]
    return replace(
        task,
        image=BASE_IMAGE,
        files={f"/app/{path}": text.encode() for path, text in wrong.items()},
        setup=_SETUP
        % _chmod("/app", [path for path, executable in wrong_modes.items() if executable and path in wrong]),
        tests={path: text.encode() for path, text in hidden.items()}
        | {"conftest.py": _conftest(hidden.get("conftest.py", ""), _module_folders(right)).encode()},
        run_tests=_RUN
        % (
            _chmod("/tests", [path for path in programs if path in hidden]),
            " ".join(quote(f"/tests/{path}") for path in files),
        ),
        reports=(_REPORT,),
        solution=_COPY
        + "".join(added)
        + _chmod("/app", [path for path in modes if not modes[path] and wrong_modes[path]], mode="-x")
        + _chmod("/app", programs),
        solution_files={f"app/{path}": text.encode() for path, text in right.items() if wrong.get(path) != text},
        agent_timeout_s=900.0,
        test_timeout_s=120.0,
    )


def _chmod(folder: str, paths: Sequence[str], mode: str = "+x") -> str:
    return f"chmod {mode} {' '.join(quote(f'{folder}/{path}') for path in paths)}\n" if paths else ""


def _module_folders(files: Collection[str]) -> list[str]:
    """Return the folders in which the repository has its modules."""
    has_src = any(path.startswith("src/") for path in files) and "src/__init__.py" not in files
    return ["/app", "/app/src"] if has_src else ["/app"]


def _conftest(own: str, folders: Sequence[str]) -> str:
    """Return the repository's conftest, which finds its modules in ``folders``.  Raises PatchError."""
    try:
        nodes = ast.parse(own).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise PatchError(f"original.gold_patch has a conftest.py that is not Python: {error}") from error
    futures = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    lines = own.split("\n")
    at = max((node.end_lineno or 0 for node in futures), default=0)
    found = (f'sys.path.append("{folder}")' for folder in folders)
    return "\n".join([*lines[:at], "import sys\n", *found, *lines[at:]])
