"""If these fail, an agent's link reveals the expected results, or honest links are removed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from sandbox.grading.containers.symlink_guard import printable_names
from sandbox.init.build import build_init


class SweptFiles(NamedTuple):
    code: int
    output: str


Sweep = Callable[..., SweptFiles]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create the files of a container."""
    for folder in ("tests/deep", "proc/self/fd", "dev", ".sbx/bin", "app/own", "etc"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("tests/expected", "app/own/file", ".sbx/busybox", "proc/mounts"):
        (tmp_path / file).touch()
    return tmp_path


@pytest.fixture(scope="session")
def init(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler here to build PID 1's program with")
    return build_init(tmp_path_factory.mktemp("init")).init


@pytest.fixture
def swept(init: Path, root: Path) -> Sweep:
    def sweep(*before: str, folder: Path = root) -> SweptFiles:
        """Run the guard; ``before`` is a program that starts it."""
        command = (*before, init, "links", folder, "/tests", "/missing")
        done = subprocess.run(command, capture_output=True, check=False, env={})
        assert not done.stderr
        return SweptFiles(done.returncode, printable_names(done.stdout))

    return sweep


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
        *("/proc/self/cwd/expected", "/proc/1/root/tests/expected", "../proc/self/fd/3", "/proc/../tests"),
        *("/dev/fd/3", "/dev/stdin", "/dev/stdout", "/proc/self/fd/1", "/proc/mounts/../self/cwd"),
        *("/proc/sys/../1/root", "/proc/thread-self/cwd", "/proc/net/../cwd"),
        *("not-yet/../../tests/expected", "/app/not-yet/x/../../tests", "own/file/../../tests/expected"),
        f"{'a' * 300}/../tests/expected",
    ],
)
def test_a_link_among_the_tests_is_removed_and_named(root: Path, swept: Sweep, text: str):
    (root / "dev/fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (root / "dev" / name).symlink_to(f"/proc/self/fd/{number}")
    (root / "app/own/own").symlink_to(".")
    (root / "app/again").symlink_to(text)
    assert swept() == (0, "/app/again")
    assert not (root / "app/again").is_symlink()
    assert (root / "tests/expected").is_file()


def test_links_to_harmless_targets_are_kept(root: Path, swept: Sweep):
    kept = {
        "app/data": "own",
        "app/last": "/app/own/file",
        "app/none": "/nowhere/at/all",
        "app/up": "../etc",
        "app/lib": "/.sbx/busybox",
        "app/loop": "loop",
        "app/long": "own/" * 500 + "../../tests",
        "app/own/own": ".",
        "app/kernel": "/proc/sys/net",
        "app/proc": "../proc",
        "app/x": "/app/tests/expected",
        "etc/mtab": "../proc/self/mounts",
        "etc/mtab2": "/proc/mounts",
        "dev/fd": "/proc/self/fd",
        "dev/stdin": "/proc/self/fd/0",
        "dev/stdout": "/proc/self/fd/1",
        "dev/stderr": "/proc/self/fd/2",
        "dev/core": "/proc/kcore",
        "tests/own": "/tests/expected",
        ".sbx/bin/cp": "/tests/expected",
        "proc/self/cwd": "/tests",
    }
    for name, text in kept.items():
        (root / name).symlink_to(text)
    assert swept() == (0, "")
    assert {name: str((root / name).readlink()) for name in kept} == kept


def test_chains_of_links_to_the_tests_are_broken(root: Path, swept: Sweep):
    for name, text in {"a": "b", "b": "c/expected", "c": "d", "d": "/tests", "e": "f/x", "f": "/proc/self/cwd"}.items():
        (root / "app" / name).symlink_to(text)
    for at in range(60):
        (root / f"app/{at}").symlink_to(f"{at + 1}")
    (root / "app/60").symlink_to("/tests/expected")
    assert swept().code == 0
    assert not [each for each in (root / "app").iterdir() if each.exists() and each.name != "own"]


def test_link_loops_are_handled(root: Path, swept: Sweep):
    (root / "app/a").symlink_to("b")
    (root / "app/b").symlink_to("a/x")
    assert swept().code == 0


def test_removed_links_are_listed_in_printable_form_up_to_a_limit_and_counted(root: Path, swept: Sweep):
    for at in range(20):
        (root / "app" / os.fsdecode(b"\xff\x1b\n%03d" % at + b"n" * 200)).symlink_to("/tests")
    code, output = swept()
    assert (code, output.count("/app/\\xff\\x1b\\n")) == (0, 5)
    assert output.endswith("... and 15 more")
    assert output.isprintable()
    assert len(output) < 1000


def test_a_folder_deeper_than_the_path_limit_is_searched(root: Path, swept: Sweep):
    top = os.open(".", os.O_RDONLY)
    try:
        os.chdir(root / "app")
        for _ in range(40):
            Path("d" * 200).mkdir()
            os.chdir("d" * 200)
        Path("up").symlink_to("../" * 41 + "tests/expected")
        Path("over").symlink_to("/tests/expected")
        (root / "app/short").symlink_to("/".join(["d" * 200] * 15))
        assert swept()[0] == 0
        assert not list(Path().iterdir())
    finally:
        os.chdir(top)
        os.close(top)
    assert (root / "app/short").is_symlink()


def test_a_link_that_cannot_be_removed_is_an_error(root: Path, swept: Sweep):
    (root / "app/link").symlink_to("/tests/expected")
    (root / "app").chmod(0o555)
    of_root = ("setpriv", "--bounding-set=-dac_override")
    assert swept(*(of_root if os.geteuid() == 0 else ())) == (1, "/app/link: Permission denied")


def test_a_folder_that_cannot_be_read_is_named(init: Path, swept: Sweep, tmp_path: Path):
    assert swept(folder=tmp_path / "none") == (1, "/: No such file or directory")


def test_kernel_file_systems_are_skipped(swept: Sweep):
    assert Path("/proc/self/root").readlink() == Path("/")
    assert swept(folder=Path("/proc/self")) == (0, "")


def test_many_folders_and_deep_ones_need_few_descriptors(root: Path, swept: Sweep):
    deep = [root / "app" / "/".join(name * 300) for name in "xyz"]
    for folder in (*deep, *(root / f"app/own/{at:0200}/y" for at in range(300))):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "link").symlink_to("/tests")
    code, output = swept("prlimit", "--nofile=12")
    assert (code, output[-12:]) == (0, "and 298 more")
    assert not [each for each in (root / "app").rglob("link") if each.is_symlink()]
