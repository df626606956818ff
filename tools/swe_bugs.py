"""Writes longshore-swe's ``bugs.jsonl`` from its repositories and ``bugs.toml``: rows in the form of SWE-SYNTH's bugs.

    python -m tools.swe_bugs

Each repository's tests are run without and with each of its bugs: a bug must break some of them, and not all.
"""

from __future__ import annotations

import difflib
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from io import StringIO
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, TypeAdapter

from sandbox.tasks.formats.swe_bugs.count_tests import passed_tests
from sandbox.tasks.formats.swe_bugs.made_repository import EMPTY_TREE

SET = Path(__file__).parents[1] / "sandbox" / "datasets" / "longshore_swe"
_ROWS = SET / "bugs.jsonl"
_PYTEST = ("-m", "pytest", "-v", "--tb=no", "-p", "no:cacheprovider", "-c", "/dev/null")

_ENDED = (0, 1)
"""Exit codes of pytest after all tests have run."""


class _Change(BaseModel):
    model_config = ConfigDict(extra="forbid")
    right: str
    wrong: str


class Bug(_Change):
    repository: str
    types: list[str]
    statement: str
    file: str
    more: list[_Change] = []

    def apply(self, files: Mapping[str, str]) -> dict[str, str]:
        """Return the repository's files with the bug.  Raises ValueError for a text that is not there just once."""
        text = files[self.file]
        for change in (self, *self.more):
            if text.count(change.right) != 1:
                raise ValueError(f"{self.repository}/{self.file} has not one {change.right!r}")
            text = text.replace(change.right, change.wrong)
        return {**files, self.file: text}


def read_bugs() -> list[Bug]:
    return TypeAdapter(list[Bug]).validate_python(tomllib.loads((SET / "bugs.toml").read_text())["bug"])


def read_repository(name: str) -> dict[str, str]:
    """Return the texts of a repository's files by path."""
    folder = SET / "repositories" / name
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


def make_patch(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the patch that leads from the texts of one state to those of another; no file is removed."""
    return "".join(
        line
        for path, text in after.items()
        if text != before.get(path)
        for line in _file_patch(path, before.get(path), text)
    )


def _file_patch(path: str, before: str | None, after: str) -> Iterator[str]:
    yield f"diff --git a/{path} b/{path}\n"
    if before is None:
        yield "new file mode 100644\n"
    old = "/dev/null" if before is None else f"a/{path}"
    yield from difflib.unified_diff(_lines(before or ""), _lines(after), old, f"b/{path}")


def _lines(text: str) -> list[str]:
    return StringIO(text, newline="\n").readlines()


def run_tests(files: Mapping[str, str]) -> tuple[set[str], str]:
    """Return the tests of a repository that pass, and what pytest printed."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            target = Path(folder, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        done = subprocess.run(
            [sys.executable, *_PYTEST, "--rootdir", folder, "tests"],
            cwd=folder,
            env={"PYTHONPATH": folder, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    if done.returncode not in _ENDED:
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout}{done.stderr}")
    return passed_tests(done.stdout), done.stdout


@cache
def tests_without_bugs(repository: str) -> set[str]:
    return run_tests(read_repository(repository))[0]


def make_row(number: int, bug: Bug) -> dict[str, object]:
    """Return the row of a bug.  Raises ValueError for one that breaks no test, or every test."""
    right, good = read_repository(bug.repository), tests_without_bugs(bug.repository)
    wrong = bug.apply(right)
    left, printed = run_tests(wrong)
    if not left < good or not left:
        raise ValueError(f"bug {number} of {bug.repository} leaves {len(left)} of {len(good)} tests:\n{printed}")
    return {
        "task_id": number,
        "source": {
            "swe_instance_id": f"instance_longshore__{bug.repository}",
            "repo": f"longshore/{bug.repository}",
            "base_commit": EMPTY_TREE,
            "dataset": "longshore",
            "fail_to_pass": sorted(good),
            "pass_to_pass": [],
        },
        "original": {"gold_patch": make_patch({}, right)},
        "bug": {
            "patch": make_patch(right, wrong),
            "problem_statement": bug.statement.strip(),
            "bug_types": bug.types,
            "target_tests": sorted(good - left),
        },
        "source_task_id": number,
    }


def main() -> None:
    rows = [make_row(number, bug) for number, bug in enumerate(read_bugs(), 1)]
    _ROWS.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    sys.stdout.write(f"{len(rows)} bugs written to {_ROWS}\n")


if __name__ == "__main__":
    main()
