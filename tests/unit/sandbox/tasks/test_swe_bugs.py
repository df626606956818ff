"""If these fail, a bug of SWE-SYNTH becomes a task that tells its fix, passes by itself, or is lost without a word."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.tasks.dataset_catalog import BUILT_IN_CATALOG, load_labelled_dataset
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.formats.swe_bugs import show_changes
from sandbox.tasks.formats.swe_bugs.bug_rows import FORMAT
from sandbox.tasks.formats.swe_bugs.count_tests import summarise
from sandbox.tasks.formats.swe_bugs.made_repository import EMPTY_TREE
from sandbox.tasks.formats.swe_bugs.tests_files import is_tests_file
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import BASE_IMAGE, Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.unified_diff import apply_patch
from tests.support.tasks.bug_rows import bug_row, image_bug_row
from tools.swe_bugs import make_patch, read_bugs, read_repository

OURS = load_labelled_dataset(BUILT_IN_CATALOG, "longshore-swe")


def read(row: dict[str, Any]) -> tuple[Task, TaskProblems]:
    problems = TaskProblems(Path("bugs.jsonl:1"))
    return FORMAT.read(row, problems), problems


def test_ours_are_twelve_bugs_of_three_repositories():
    assert OURS.problems == ()
    assert OURS.remarks == ()
    assert [task.id for task in OURS.tasks] == [f"swe-synth-{number}" for number in range(1, 13)]
    assert len({json.loads(task.metadata["bug.source"])["repo"] for task in OURS.tasks}) == 3
    assert len({task.family for task in OURS.tasks}) >= 9


def test_ours_are_made_of_the_files_beside_them():
    rows = [
        json.loads(line) for line in (BUILT_IN_CATALOG.parent / "longshore_swe/bugs.jsonl").read_text().splitlines()
    ]
    for row, bug in zip(rows, read_bugs(), strict=True):
        right = read_repository(bug.repository)
        assert row["original"]["gold_patch"] == make_patch({}, right), "run python -m tools.swe_bugs"
        assert row["bug"]["patch"] == make_patch(right, bug.apply(right)), "run python -m tools.swe_bugs"
        assert (row["bug"]["problem_statement"], row["bug"]["bug_types"]) == (bug.statement.strip(), bug.types)


def test_a_repository_in_its_row_is_made_with_its_bug():
    task, problems = read(bug_row())
    assert problems.found == []
    assert (task.id, task.instruction, task.family, task.image) == (
        "swe-synth-7",
        "It adds.",
        "wrong-operator",
        BASE_IMAGE,
    )
    assert task.files["/app/calc.py"] == b"def sub(a, b):\n    return a + b\n"
    assert task.tests["tests/test_calc.py"].startswith(b"from calc import sub")
    assert task.expected_tests == ("tests/test_calc.py::test_sub", "tests/test_calc.py::test_zero")
    assert task.solution_files == {"app/calc.py": b"def sub(a, b):\n    return a - b\n"}
    assert "/tests/tests/test_calc.py" in task.run_tests


def test_a_repository_in_its_row_has_its_empty_files_and_its_programs():
    row = bug_row()
    row["original"]["gold_patch"] += (
        "diff --git a/pkg/__init__.py b/pkg/__init__.py\nnew file mode 100644\nindex 0000000..e69de29\n"
        "diff --git a/run.sh b/run.sh\nnew file mode 100755\n--- /dev/null\n+++ b/run.sh\n@@ -0,0 +1 @@\n+ls\n"
    )
    row["bug"]["patch"] += "diff --git a/run.sh b/run.sh\nold mode 100755\nnew mode 100644\n"
    task, problems = read(row)
    assert problems.found == []
    assert task.files["/app/pkg/__init__.py"] == b""
    assert "chmod" not in task.setup
    assert "chmod +x /app/run.sh" in task.solution


def test_a_conftest_with_imports_of_the_future_is_python_still():
    row = bug_row()
    row["original"]["gold_patch"] += make_patch({}, {"conftest.py": '"""It."""\nfrom __future__ import annotations'})
    conftest = read(row)[0].tests["conftest.py"].decode()
    compile(conftest, "conftest.py", "exec")
    assert 'sys.path.append("/app")' in conftest


def test_the_modules_of_a_repository_may_be_in_src():
    row = bug_row()
    row["original"]["gold_patch"] += make_patch({}, {"src/roman.py": ""})
    assert b'sys.path.append("/app/src")' in read(row)[0].tests["conftest.py"]
    row["original"]["gold_patch"] += make_patch({}, {"src/__init__.py": "x = 1\n"})
    assert b'sys.path.append("/app/src")' not in read(row)[0].tests["conftest.py"]


def test_a_patch_that_cannot_make_a_repository_says_how_it_is_written():
    row = bug_row()
    row["bug"]["patch"] = "diff --git a/calc.py b/c.py\nsimilarity index 100%\nrename from calc.py\nrename to c.py\n"
    (problem,) = read(row)[1].found
    assert "rename from calc.py (the patches make the repository and its bug: write them by git diff" in str(problem)


def test_a_repository_in_an_image_is_graded_in_a_clean_one():
    task, problems = read(image_bug_row())
    assert problems.found == []
    assert (task.image, task.grading, task.artifacts) == ("example/calc:1", GradingLevel.ARTIFACTS, ("/app",))
    assert task.solution_files == {"bug.patch": image_bug_row()["bug"]["patch"].encode()}
    assert "':(top,literal)tests/test_calc.py'" in task.run_tests
    assert "':(top,exclude,literal)calc.py'" in task.run_tests
    subprocess.run(["bash", "-n"], input=(task.setup + task.run_tests).encode(), check=True)


def read_tree(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Modes and contents of files and links by path, of what a patch is about."""
    return {
        f"{path.relative_to(folder)}": (
            (f"{path.lstat().st_mode & 0o170100:o}", path.read_bytes()) if not path.is_symlink()
            else ("link", bytes(path.readlink()))
        )
        for path in folder.rglob("*")
        if (path.is_file() or path.is_symlink()) and not {".git", ".pytest_cache", "__pycache__"} & {*path.parts}
    }  # fmt: skip


BEFORE: dict[str, bytes] = {
    "changed.py": b"".join(b"line %d\n" % number for number in range(30)),
    "removed.py": b"x\n",
    "emptied.py": b"x\n",
    "empty and removed.py": b"",
    "no newline.txt": b"a\nb",
    "made whole.txt": b"a\nb",
    "run.sh": b"ls\n",
    "was a link": b"->changed.py",
    "becomes a link": b"x\n",
    "turned": b"->changed.py",
    "same.py": b"x\n",
    "folder/removed.py": b"x\n",
    "dos.txt": b"a\r\nb\r\n",
}
AFTER: dict[str, bytes] = {
    "changed.py": b"first\n" + BEFORE["changed.py"].replace(b"line 20\n", b"").replace(b"line 29\n", b"last\n"),
    "emptied.py": b"",
    "no newline.txt": b"a\nc",
    "made whole.txt": b"a\nb\n",
    "run.sh": b"ls\n",
    "was a link": b"x\n",
    "becomes a link": b"->same.py",
    "turned": b"->same.py",
    "same.py": b"x\n",
    "folder": b"a file\n",
    "dos.txt": b"a\r\nc\r\n",
    "new/deep/file.py": b"x\n",
    "new/empty.py": b"",
    'new/\u00e9 "quoted"\\\t\n\x01.py': b"x\n",
    "new/link": b"->nowhere",
    "bytes.bin": b"\x00\xff\r\x0c\n\x80",
    ".pytest_cache/README.md": b"x\n",
    "__pycache__/a.pyc": b"\x00",
    ".git/HEAD": b"x\n",
}


def write_tree(folder: Path, files: dict[str, bytes]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if text.startswith(b"->"):
            (folder / path).symlink_to(text[2:].decode())
        else:
            (folder / path).write_bytes(text)
    return folder


def test_an_agents_changes_without_git_are_a_patch_that_git_applies(tmp_path: Path):
    before, after = write_tree(tmp_path / "before", BEFORE), write_tree(tmp_path / "after", AFTER)
    (after / "run.sh").chmod(0o755)
    (after / "new/deep/file.py").chmod(0o755)
    shown = subprocess.run(
        [sys.executable, "-I", show_changes.__file__, before, after], check=True, capture_output=True
    )
    checkout = write_tree(tmp_path / "checkout", BEFORE)
    subprocess.run(["git", "init", "-q", checkout], check=True)
    applied = subprocess.run(["git", "apply", "-"], cwd=checkout, input=shown.stdout, capture_output=True, check=False)
    assert applied.returncode == 0, applied.stderr
    assert read_tree(checkout) == read_tree(after)
    assert shown.stdout.startswith(b"diff --git a/becomes a link b/becomes a link\ndeleted file mode 100644\n--- a/")
    back = subprocess.run(
        ["git", "apply", "-R", "-"], cwd=checkout, input=shown.stdout, capture_output=True, check=False
    )
    assert back.returncode == 0, back.stderr
    assert read_tree(checkout) == read_tree(before)
    assert list(show_changes.show_changes(before, before)) == []


def test_an_agents_changes_without_git_are_read_as_a_row_has_them(tmp_path: Path):
    before, after = write_tree(tmp_path / "before", {"a.py": b"x\n"}), tmp_path / "after"
    write_tree(after, {"a.py": b"y\n", "b.py": b"z\n"})
    patch = "".join(show_changes.show_changes(before, after))
    assert apply_patch(patch, {"a.py": "x\n"}) == {"a.py": "y\n", "b.py": "z\n"}


def test_a_number_of_no_type_that_it_may_have_is_told_once():
    (problem, *_) = read(bug_row() | {"task_id": []})[1].found
    assert "task_id (must be a valid integer or must be a valid string)" in str(problem)


def test_a_bug_is_written_as_it_was_read():
    for row in (bug_row(), image_bug_row(), bug_row() | {"task_id": "expansion-x"}):
        assert FORMAT.write(read(row)[0]) == row


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"source": {"base_commit": "abc", "dataset": ""}},
            "source.dataset is '', not 'github-pr' (a bug of SWE-bench Pro has",
        ),
        ({"source": {"base_commit": "abc", "dataset": "github-pr"}}, "source.docker_image is missing"),
        ({"source": {"fail_to_pass": [], "pass_to_pass": []}}, "nothing can be graded"),
        ({"source": {"swe_instance_id": None}}, "source.swe_instance_id"),
        ({"source": {"test_command": "make test"}}, "source.test_command is 'make test'"),
        ({"source": {"test_command": " "}}, "source.test_command (must not be blank, as ' ')"),
        ({"bug": {"patch": ""}}, "bug.patch has no change of a file in it (the patches make the repository"),
        (
            {"bug": {"patch": make_patch({"calc.py": "x\n"}, {"calc.py": "y\n"})}},
            "bug.patch does not apply: calc.py has",
        ),
        ({"bug": {"problem_statement": ""}}, "bug.problem_statement"),
        ({"original": {"gold_patch": "x"}}, "original.gold_patch has no change"),
        (
            {"original": {"gold_patch": make_patch({}, {"calc.py": "def sub(a, b):\n    return a - b\n"})}},
            "lacks them: tests/test_calc.py",
        ),
    ],
)
def test_a_row_that_makes_no_task_is_named_with_its_reason(
    changes: dict[str, dict[str, Any]], says: str, tmp_path: Path
):
    row = bug_row()
    for part, values in changes.items():
        row[part] |= values
    (tmp_path / "bugs.jsonl").write_text(f"{json.dumps(bug_row() | {'task_id': 8})}\n{json.dumps(row)}\n")
    found = load_tasks(tmp_path / "bugs.jsonl")
    assert [task.id for task in found.tasks] == ["swe-synth-8"]
    (problem,) = found.problems
    assert str(problem).startswith(f"task {tmp_path / 'bugs.jsonl'}:2: ")
    assert says in str(problem)
    assert "\n" not in str(problem)


@pytest.mark.parametrize("number", [-3, True, 1.5])
def test_what_is_no_number_names_no_bug(number: object, tmp_path: Path):
    (tmp_path / "bugs.jsonl").write_text(json.dumps(bug_row() | {"task_id": number}))
    found = load_tasks(tmp_path / "bugs.jsonl")
    assert found.tasks == ()
    assert all("task_id" in str(problem) for problem in found.problems)
    assert found.problems


def test_a_missing_repository_is_named(tmp_path: Path):
    row = bug_row()
    del row["source"]
    (tmp_path / "bugs.jsonl").write_text(json.dumps(row))
    (problem,) = load_tasks(tmp_path / "bugs.jsonl", "swe_bug").problems
    assert "row: source" in str(problem)


def test_fields_that_nobody_reads_are_named():
    row = bug_row()
    row["generated_by"], row["bug"]["description"] = "x", "y"
    task, problems = read(row)
    assert problems.remarks == [
        "has fields that SWE-SYNTH's environment does not read either: generated_by, bug.description"
    ]
    assert FORMAT.write(task) == row


def test_the_worst_line_about_a_test_counts():
    output = (
        "tests/a.py::test_x PASSED                 [ 10%]\ntests/a.py::test_y[a b - c] PASSED [100%]\n"
        "tests/a.py::test_z PASSED\ntests/a.py::test_z FAILED\ntests/a.py::test_s SKIPPED (why) [ 50%]\n"
        "FAILED tests/a.py::test_x\nxtests/a.py::test_m PASSED\n"
    )
    names = [f"tests/a.py::test_{name}" for name in ("x", "y[a b - c]", "z", "s", "m")]
    assert summarise(output, names).splitlines() == [
        "=== short test summary info ===",
        f"PASSED {names[0]}",
        f"PASSED {names[1]}",
        f"FAILED {names[2]}",
        f"FAILED {names[3]}",
    ]


@pytest.mark.parametrize(
    "path",
    [
        "tests/a.txt",
        "a/test/b.py",
        "conftest.py",
        "a/test_b.py",
        "b_test.py",
        "tox.ini",
        ".pytest.ini",
        "pytest.toml",
        "pyproject.toml",
        "setup.cfg",
    ],
)
def test_files_of_tests_are_known(path: str):
    assert is_tests_file(path)


@pytest.mark.parametrize("path", ["a.py", "latest/a.py", "contest.py", "attest_x.py", "testing/a.py"])
def test_other_files_are_none(path: str):
    assert not is_tests_file(path)


def test_every_bug_of_ours_is_turned_back_by_its_solution():
    for task in OURS.tasks:
        bug = json.loads(task.metadata["bug.bug"])["patch"]
        right = apply_patch(json.loads(task.metadata["bug.original"])["gold_patch"], {})
        fixed = {path.removeprefix("app/"): data.decode() for path, data in task.solution_files.items()}
        assert apply_patch(bug, right) | fixed == right
    assert json.loads(OURS.tasks[0].metadata["bug.source"])["base_commit"] == EMPTY_TREE
