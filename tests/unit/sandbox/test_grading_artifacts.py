"""What an agent packed cannot write outside its artifact, nor bring a device, a pipe or a set-uid program along."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from sandbox.grading.artifacts import Unfit, clean_tar

File = tuple[str, bytes, str]
"""Name, type, link name or content."""


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


def cleaned(folder: Path, *members: File, mode: int = 0o644) -> dict[str, str]:
    clean_tar(packed(folder, *members, mode=mode), folder / "sound.tar", "app")
    found: dict[str, str] = {}
    with tarfile.open(folder / "sound.tar") as tar:
        for each in tar:
            file = None if each.issym() else tar.extractfile(each)
            found[each.name] = file.read().decode() if file else each.linkname
    return found


REG, DIR, SYM, LNK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def test_files_folders_and_links_come_along(tmp_path):
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
def test_what_would_reach_outside_is_left_behind(tmp_path, member):
    assert list(cleaned(tmp_path, ("app/", DIR, ""), ("app/link", SYM, "/etc"), member)) == ["app", "app/link"]


@pytest.mark.parametrize("kind", [SYM, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_an_artifact_that_is_no_file_or_folder_is_refused(tmp_path, kind):
    with pytest.raises(Unfit, match="neither a file nor a folder"):
        cleaned(tmp_path, ("app", kind, "/usr"))


def test_set_uid_bits_are_left_behind(tmp_path):
    cleaned(tmp_path, ("app", REG, "x"), mode=0o6755)
    with tarfile.open(tmp_path / "sound.tar") as tar:
        assert tar.getmembers()[0].mode == 0o755


def test_a_broken_archive_is_refused(tmp_path):
    whole = packed(tmp_path, ("app/a", REG, "text" * 1000))
    whole.write_bytes(whole.read_bytes()[:1500])
    with pytest.raises(Unfit):
        clean_tar(whole, tmp_path / "sound.tar", "app")
