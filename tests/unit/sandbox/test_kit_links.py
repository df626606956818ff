"""If these fail, an agent's link shows it what its tests expect, or honest links are removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from sandbox.kit import links

IN_ROOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from sandbox.kit.links import main; sys.exit(main(sys.argv[1:]))"
)
"""In a process of its own: it changes its working directory."""
HERE = str(Path(links.__file__).parents[2])


class Swept(NamedTuple):
    code: int
    said: str


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What a container has."""
    for folder in ("tests/deep", "proc/self/fd", "dev", ".sbx/bin", "app/own", "etc"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("tests/expected", "app/own/file", ".sbx/busybox", "proc/mounts"):
        (tmp_path / file).touch()
    return tmp_path


def swept(root: Path) -> Swept:
    done = subprocess.run(
        [sys.executable, "-I", "-c", IN_ROOT, HERE, str(root), "/tests", "/missing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    return Swept(done.returncode, done.stdout)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "/tests/expected",
            "/tests",
            "/",
            "../tests/expected",
            "../../../../tests/deep",
            "//tests/./deep/../expected",
        ),
        *("/tests/made/later", "/tests/../tests", "own/../../tests/expected", "/app/../tests/none"),
        *("/proc/self/cwd/expected", "/proc/1/root/tests/expected", "../proc/self/fd/3", "/proc", "/proc/../tests"),
        *("/dev/fd/3", "/dev/stdin", "/proc/self/fd/0", "/proc/mounts/../self/cwd"),
        *("not-yet/../../tests/expected", "/app/not-yet/x/../../tests", "own/file/../../tests/expected"),
        *(f"{'a' * 300}/../tests/expected", "again", "own/" * 500 + "../../tests"),
    ],
)
def test_a_link_among_the_tests_is_removed_and_named(root: Path, text: str):
    (root / "dev/fd").symlink_to("/proc/self/fd")
    (root / "dev/stdin").symlink_to("/proc/self/fd/0")
    (root / "app/own/own").symlink_to(".")
    (root / "app/again").symlink_to(text)
    assert swept(root) == (0, "/app/again")
    assert not (root / "app/again").is_symlink()
    assert (root / "tests/expected").is_file()


def test_links_that_lead_elsewhere_stay(root: Path):
    kept = {
        "app/data": "own",
        "app/last": "/app/own/file",
        "app/none": "/nowhere/at/all",
        "app/up": "../etc",
        "app/lib": "/.sbx/busybox",
        "app/log": "/dev/stdout",
        "app/x": "/app/tests/expected",
        "etc/mtab": "../proc/self/mounts",
        "etc/mtab2": "/proc/mounts",
        "dev/fd": "/proc/self/fd",
        "dev/stdin": "/proc/self/fd/0",
        "dev/stdout": "/proc/self/fd/1",
        "dev/core": "/proc/kcore",
        "tests/own": "/tests/expected",
        ".sbx/bin/cp": "/tests/expected",
        "proc/self/cwd": "/tests",
    }
    for name, text in kept.items():
        (root / name).symlink_to(text)
    assert swept(root) == (0, "")
    assert {name: str((root / name).readlink()) for name in kept} == kept


def test_a_chain_leads_nowhere(root: Path):
    for name, text in {"a": "b", "b": "c/expected", "c": "d", "d": "/tests", "e": "f/x", "f": "/proc/self/cwd"}.items():
        (root / "app" / name).symlink_to(text)
    for at in range(60):
        (root / f"app/{at}").symlink_to(f"{at + 1}")
    (root / "app/60").symlink_to("/tests/expected")
    assert swept(root).code == 0
    assert not [each for each in (root / "app").iterdir() if each.exists() and each.name != "own"]


def test_loops_end(root: Path):
    (root / "app/a").symlink_to("b")
    (root / "app/b").symlink_to("a/x")
    assert swept(root).code == 0


def test_the_first_are_named_in_letters_that_print_and_all_are_counted(root: Path):
    for at in range(20):
        (root / "app" / os.fsdecode(b"\xff\x1b\n%03d" % at + b"n" * 200)).symlink_to("/tests")
    code, said = swept(root)
    assert (code, said.count("/app/\\xff\\x1b\\n")) == (0, 5)
    assert said.endswith("... and 15 more")
    assert said.isprintable()
    assert len(said) < 1000


def test_a_folder_deeper_than_a_path_may_be_is_looked_at(root: Path):
    top = os.open(".", os.O_RDONLY)
    try:
        os.chdir(root / "app")
        for _ in range(40):
            Path("d" * 200).mkdir()
            os.chdir("d" * 200)
        Path("up").symlink_to("../" * 41 + "tests/expected")
        Path("over").symlink_to("/tests/expected")
        (root / "app/short").symlink_to("/".join(["d" * 200] * 15))
        assert swept(root)[0] == 0
        assert not list(Path().iterdir())
    finally:
        os.chdir(top)
        os.close(top)
    assert (root / "app/short").is_symlink()


def test_what_cannot_be_looked_at_is_not_passed_over(root: Path, monkeypatch):
    (root / "app/link").symlink_to("/tests/expected")

    def refused(_: bytes, **__: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.chdir(root)
    monkeypatch.setattr(os, "unlink", refused)
    monkeypatch.setattr(links, "kernels_devices", frozenset[int])
    said: list[str] = []
    monkeypatch.setattr(sys.stdout, "write", said.append)
    assert links.main([str(root), "/tests"]) == 1
    assert said == ["/app/link: Operation not permitted"]


def test_the_kernels_file_systems_are_known_by_number(tmp_path: Path):
    (tmp_path / "mounts").write_text(
        "22 1 0:45 / / rw shared:1 - overlay overlay rw\n23 22 0:46 / /proc rw - proc proc rw\n"
        "24 22 8:1 /x /data rw master:2 - ext4 /dev/sda rw\n25 22 0:50 / /dev/a\\040b rw - devpts none rw\n"
    )
    assert links.kernels_devices(str(tmp_path / "mounts")) == {os.makedev(0, 46), os.makedev(0, 50)}
    assert Path("/proc").stat().st_dev in links.kernels_devices()
