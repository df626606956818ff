"""If these fail, a task whose image can never be built passes `validate`, or one that can be built is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.tasks.container_files.build_context import BuildPlan, read_build_context
from sandbox.tasks.container_files.dockerfile import parse_instructions
from sandbox.tasks.container_files.dockerfile_faults import find_dockerfile_faults, find_foreign_stages
from sandbox.tasks.file_tree import FileTree, TreeFile, read_tree
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.validation.task_warnings import find_task_warnings
from tests.support.tasks.dockerfiles import BROKEN_LINES, WHOLE_LINES


@pytest.mark.parametrize(("line", "why"), BROKEN_LINES)
def test_a_line_with_which_no_image_can_be_built_is_named(line: str, why: str) -> None:
    (fault,) = find_dockerfile_faults(f"# one\nFROM b AS early\nRUN a \\\n  b\n{line}\nFROM b AS late\n")
    assert (fault.line, why in f"{fault.what}: {fault.why}") == (5, True), fault


@pytest.mark.parametrize("line", WHOLE_LINES)
def test_a_line_with_which_an_image_can_be_built_is_no_fault(line: str) -> None:
    assert not list(find_dockerfile_faults(f"ARG A\nFROM b AS early\nFROM b AS now\n{line}\nFROM b AS late\n"))


def test_the_task_is_unusable_with_the_line_and_the_reason_once() -> None:
    problems = TaskProblems(Path("task"))
    text = b"RUN early\nFROM b\n\nCOPY --chmd=1 a /a\n"
    read_build_context(FileTree({"a": TreeFile(b""), "Dockerfile": TreeFile(text)}), BuildPlan(), (), problems)
    assert [(each.what, each.why) for each in problems.found] == [
        ("Dockerfile, line 1: RUN early", "it stands before the first FROM"),
        ("Dockerfile, line 4: COPY --chmd", "no builder knows this option: did you mean chmod?"),
    ]


def test_an_image_from_which_files_are_copied_is_named() -> None:
    text = (
        "FROM b AS one\nFROM one\nCOPY --from=One a b\nCOPY --from=0 a b\nCOPY --from=nope a b\nCOPY --from=c:1 a b\n"
    )
    assert list(find_foreign_stages(parse_instructions(text))) == ["nope"]
    task = Task("a", "", build=ImageBuild({"Dockerfile": text.encode()}))
    assert any("copies from nope" in each for each in find_task_warnings(task))


@pytest.mark.parametrize(
    ("modes", "said"),
    [
        ({"a": 0o644, "d/b": 0o755}, []),
        ({"a": 0o600, "d/b": 0o700}, []),
        ({"a": 0o644, "d/b": 0o600}, []),
        ({"a": 0o4755}, ["a with"]),
        ({"a": 0o644, "b": 0o600, "c": 0o600}, ["b and 1 more with"]),
    ],
)
def test_permissions_that_no_image_gets_have_one_remark(tmp_path: Path, modes: dict[str, int], said: list[str]) -> None:
    for path, mode in modes.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("")
        (tmp_path / path).chmod(mode)
    tree, problems = read_tree(tmp_path), TaskProblems(tmp_path)
    dockerfile = {"x/Dockerfile": TreeFile(b"FROM b\n")}
    read_build_context(FileTree(tree.files | dockerfile), BuildPlan(dockerfile="x/Dockerfile"), (), problems)
    assert [each.startswith(start) for each, start in zip(problems.remarks, said, strict=True)] == [True] * len(said)
