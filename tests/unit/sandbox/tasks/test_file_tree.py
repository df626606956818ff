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


@pytest.mark.parametrize("target", ["../../outside/y", "/etc/passwd", "d", "nowhere", "x"])
def test_a_link_to_anything_else_is_named(folder: Path, target: str) -> None:
    (folder / "tests/x").symlink_to(target)
    for apart in (True, False):
        assert read_tree(folder, apart=apart).irregular == {"tests/x"}


def test_a_link_is_judged_by_where_it_ends(folder: Path) -> None:
    (folder / "tests/a").symlink_to("../y")
    (folder / "tests/b").symlink_to("a")
    assert read_tree(folder, apart=True).irregular == {"tests/a", "tests/b"}
