"""If these fail, an agent's archive writes outside its artifact, or contains a device, a pipe or a set-uid program."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from sandbox.grading.containers import artifacts
from sandbox.grading.containers.artifacts import ArtifactCopyCancelledError, UnfitArtifactError, sanitize_tar

File = tuple[str, bytes, str]
"""Name, type, and link name or content of a member."""


def packed(folder: Path, *members: File, mode: int = 0o644) -> Path:
    path = folder / "raw.tar"
    with tarfile.open(path, "w") as tar:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, mode
            data = content.encode()
            if kind == tarfile.REGTYPE:
                info.size = len(data)
            else:
                info.linkname = content
            tar.addfile(info, io.BytesIO(data))
    return path


def cleaned(folder: Path, *members: File, mode: int = 0o644, excludes: Sequence[str] = ()) -> dict[str, str]:
    raw, sound = packed(folder, *members, mode=mode), folder / "sound.tar"
    sanitize_tar(raw, sound, "app", "app", never, excludes=excludes)
    found: dict[str, str] = {}
    with tarfile.open(folder / "sound.tar") as tar:
        for each in tar:
            file = None if each.issym() else tar.extractfile(each)
            found[each.name] = file.read().decode() if file else each.linkname
    return found


def never() -> bool:
    return False


REG, DIR, SYM, LNK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def test_files_folders_and_links_are_copied(tmp_path):
    members = [("app/", DIR, ""), ("app/a", REG, "text"), ("app/b", SYM, "/usr/bin/env"), ("app/c", LNK, "app/a")]
    assert cleaned(tmp_path, *members) == {"app": "", "app/a": "text", "app/b": "/usr/bin/env", "app/c": "text"}


@pytest.mark.parametrize(
    "member",
    [
        ("app/../etc/passwd", REG, "x"),
        ("../app/x", REG, "x"),
        ("/app/x", REG, "x"),
        ("apple/x", REG, "x"),
        ("app/device", tarfile.CHRTYPE, ""),
        ("app/block", tarfile.BLKTYPE, ""),
        ("app/pipe", tarfile.FIFOTYPE, ""),
        ("app/hard", LNK, "etc/shadow"),
        ("app/hard", LNK, "app/../etc/shadow"),
        ("app/hard", LNK, "app/link"),
        ("app/hard", LNK, "app/link/shadow"),
        ("app/link/through", REG, "x"),
        ("app/link/deep/through", REG, "x"),
    ],
)
def test_members_outside_the_folder_are_left_out(tmp_path, member):
    assert list(cleaned(tmp_path, ("app/", DIR, ""), ("app/link", SYM, "/etc"), member)) == ["app", "app/link"]


@pytest.mark.parametrize("kind", [SYM, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_an_artifact_that_is_neither_file_nor_folder_is_refused(tmp_path, kind):
    with pytest.raises(UnfitArtifactError, match="neither a file nor a folder"):
        cleaned(tmp_path, ("app", kind, "/usr"))


def test_setuid_bits_are_removed(tmp_path):
    cleaned(tmp_path, ("app", REG, "x"), mode=0o6755)
    with tarfile.open(tmp_path / "sound.tar") as tar:
        assert tar.getmembers()[0].mode == 0o755


def test_a_broken_archive_is_refused(tmp_path):
    whole = packed(tmp_path, ("app/a", REG, "text" * 1000))
    whole.write_bytes(whole.read_bytes()[:1500])
    with pytest.raises(UnfitArtifactError):
        sanitize_tar(whole, tmp_path / "sound.tar", "app", "app", never)


def test_a_folder_is_renamed_with_its_contents(tmp_path):
    """The target of a link is kept under the link's own name; long names are in headers of their own."""
    deep = "/".join(["n" * 100] * 3)
    above = [(f"v2/{deep[:end]}".rstrip("/"), DIR, "") for end in (0, 100, 201, 302)]
    files = [(f"v2/{deep}/f", REG, "text"), ("v2/hard", LNK, f"v2/{deep}/f"), ("v2/v2", SYM, "v2/x")]
    sanitize_tar(packed(tmp_path, *above, *files), tmp_path / "sound.tar", "v2", "app", never)
    with tarfile.open(tmp_path / "sound.tar") as tar:
        assert [each.name for each in tar] == [name.replace("v2", "app", 1) for name, _, _ in (*above, *files)]
        hard = tar.extractfile("app/hard")
        assert hard is not None
        assert hard.read() == b"text"
        assert tar.getmember("app/v2").linkname == "v2/x"


@pytest.mark.parametrize("second", [SYM, REG])
def test_the_first_of_two_members_with_the_same_name_is_used(tmp_path, second: bytes):
    members = [("app/", DIR, ""), ("app/x", DIR, ""), ("app/x", second, "/etc"), ("app/x/passwd", REG, "mine")]
    assert cleaned(tmp_path, *members) == {"app": "", "app/x": "", "app/x/passwd": "mine"}


def folders(depth: int) -> list[File]:
    """Return nested folders."""
    return [("app" + "/d" * each, DIR, "") for each in range(depth + 1)]


def test_members_with_too_long_paths_are_left_out(tmp_path):
    """The daemon would refuse it, and everything else with it."""
    assert max(map(len, cleaned(tmp_path, *folders(2000)))) == artifacts.MAX_PATH_BYTES - 1


def test_names_that_are_too_long_together_are_refused(tmp_path, monkeypatch):
    """The time grows with the names, and deep folders would delay a grading."""
    monkeypatch.setattr(artifacts, "MAX_NAMES_BYTES", 1 << 20)
    members = [*folders(1000), *((f"app{'/d' * 1000}/{each}", REG, "") for each in range(1000))]
    with pytest.raises(UnfitArtifactError, match="exceed 1 MiB"):
        cleaned(tmp_path, *members)


def test_more_files_than_can_be_carried_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "MAX_MEMBERS", 2)
    assert len(cleaned(tmp_path, *folders(1))) == 2
    with pytest.raises(UnfitArtifactError, match="more than 2 files"):
        cleaned(tmp_path, *folders(2))


def test_a_cancelled_copy_stops_early(tmp_path):
    answers = iter([False, False, True])
    with pytest.raises(ArtifactCopyCancelledError):
        sanitize_tar(packed(tmp_path, *folders(9)), tmp_path / "sound.tar", "app", "app", lambda: next(answers))


@pytest.mark.parametrize(
    "pattern",
    [
        "*.log",
        "skip",
        "skip/",
        "./skip",
        "keep/*",
        "*/b.log",
        r"\*.log",
        "c.t?t",
        "*",
        "a*",
        "./*",
        "s*c.txt",
        "./b.log",
    ],
)
def test_patterns_exclude_what_gnu_tar_excludes(tmp_path: Path, pattern: str):
    """Harbor gives them to it."""
    folders, files = ("keep", "skip"), ("a.txt", "a.log", "keep/b.log", "skip/c.txt", "*.log")
    for path in folders:
        (tmp_path / "app" / path).mkdir(parents=True)
    for path in files:
        (tmp_path / "app" / path).touch()
    command = ["tar", "cf", tmp_path / "theirs.tar", f"--exclude={pattern}", "-C", tmp_path / "app", "."]
    subprocess.run(command, check=True)
    with tarfile.open(tmp_path / "theirs.tar") as tar:
        theirs = {each.removeprefix("./") for each in tar.getnames()} - {"."}
    members = [("app", DIR, ""), *((f"app/{path}", DIR, "") for path in folders)]
    ours = cleaned(tmp_path, *members, *((f"app/{path}", REG, "") for path in files), excludes=[pattern])
    assert {each.removeprefix("app/") for each in ours} - {"app"} == theirs
