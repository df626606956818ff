"""Links in a folder: a file within it is read, whatever leads elsewhere is named.  If these fail, tests lack a file, or
a task reads one of the machine or an answer that its agent must not see."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.tasks.file_tree import read_tree


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in ("task/tests/d/y", "task/tests/run", "task/solution/y", "task/y", "outside/y"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / "task/tests/run").chmod(0o755)
    return tmp_path / "task"


@pytest.mark.parametrize(
    ("link", "target", "content"),
    [
        ("tests/x", "d/y", "task/tests/d/y"),
        ("tests/d/x", "../run", "task/tests/run"),
        ("x", "y", "task/y"),
        ("x", "tests/d/y", "task/tests/d/y"),
    ],
)
def test_a_link_within_its_folder_is_read_as_the_file(folder: Path, link: str, target: str, content: str) -> None:
    (folder / link).symlink_to(target)
    for apart in (True, False):
        tree = read_tree(folder, apart=apart)
        assert tree.files[link].data == content.encode()
        assert tree.files[link].executable == (target == "../run")
        assert not tree.irregular


def test_a_link_between_folders_is_followed_only_where_they_stay_together(folder: Path) -> None:
    (folder / "tests/x").symlink_to("../solution/y")
    assert read_tree(folder, apart=True).irregular == {"tests/x"}
    assert read_tree(folder).files["tests/x"].data == b"task/solution/y"


@pytest.mark.parametrize("target", ["../../outside/y", "../../outside", "/etc", "/etc/passwd", "nowhere", "x"])
def test_a_link_to_anything_else_is_named(folder: Path, target: str) -> None:
    (folder / "tests/x").symlink_to(target)
    for apart in (True, False):
        assert read_tree(folder, apart=apart).irregular == {"tests/x"}


def test_a_link_is_judged_by_where_it_ends(folder: Path) -> None:
    (folder / "tests/a").symlink_to("../y")
    (folder / "tests/b").symlink_to("a")
    assert read_tree(folder, apart=True).irregular == {"tests/a", "tests/b"}


@pytest.mark.parametrize(
    ("link", "target", "inside"), [("tests/x", "d", "tests/x/y"), ("tests/d/x", "../../tests/d/../e", "tests/d/x/")]
)
def test_a_link_to_a_folder_within_its_folder_is_read_as_that(folder: Path, link: str, target: str, inside: str):
    (folder / "tests/e").mkdir()
    (folder / link).symlink_to(target)
    for apart in (True, False):
        tree = read_tree(folder, apart=apart)
        assert inside in tree.files
        assert not tree.irregular


def test_links_to_folders_are_not_followed_through_each_other(folder: Path):
    for link in ("tests/a", "tests/d/b"):
        (folder / link).symlink_to(folder / "tests")
    tree = read_tree(folder, apart=True)
    assert tree.irregular == {"tests/a/a", "tests/a/d/b", "tests/d/b/a", "tests/d/b/d/b"}
    assert tree.files["tests/a/d/y"].data == tree.files["tests/d/b/d/y"].data == b"task/tests/d/y"


def test_a_linked_folder_leads_to_no_other_folder(folder: Path):
    (folder / "tests/d/x").symlink_to("../../solution/y")
    (folder / "tests/a").symlink_to("d")
    assert read_tree(folder, apart=True).irregular == {"tests/d/x", "tests/a/x"}
