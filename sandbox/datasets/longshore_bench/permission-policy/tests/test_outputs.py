"""Every entry of the folder by the policy."""

import os
import stat
from pathlib import Path

SHARE = Path("/app/share")
FILES = {
    ".hidden/.private/not-private": (b"x\n", 0o644),
    "a b/private/file with blank": (b"y\n", 0o600),
    "bin/binary": (b"\x7fELF", 0o644),
    "bin/notes.txt": (b"text\n", 0o644),
    "bin/run": (b"#!/bin/sh\necho hi\n", 0o755),
    "bin/sgid": (b"#!/bin/sh\necho sg\n", 0o755),
    "docs/empty": (b"", 0o644),
    "docs/private/deep/tool": (b"#!/bin/sh\n", 0o700),
    "docs/private/key": (b"secret\n", 0o600),
    "docs/short": (b"#", 0o644),
    "dropbox/in/script": (b"#!/bin/sh\n", 0o755),
    "dropbox/left.txt": (b"drop\n", 0o644),
}
FOLDERS = {
    **dict.fromkeys([".hidden", ".hidden/.private", "a b", "bin", "docs", "dropbox/in"], 0o755),
    **dict.fromkeys(["a b/private", "docs/private", "docs/private/deep"], 0o700),
    "dropbox": 0o1777,
}


def mode(path):
    return stat.S_IMODE((SHARE / path).lstat().st_mode)


def test_folders():
    assert {path: oct(mode(path)) for path in FOLDERS} == {path: oct(wanted) for path, wanted in FOLDERS.items()}
    assert stat.S_IMODE(SHARE.lstat().st_mode) == 0o755


def test_files():
    assert {path: oct(mode(path)) for path in FILES} == {path: oct(wanted) for path, (_, wanted) in FILES.items()}


def test_owners():
    for path in [*FILES, *FOLDERS]:
        found = (SHARE / path).lstat()
        wanted = (65534, 65534) if path.startswith("dropbox/") else (0, 0)
        assert (found.st_uid, found.st_gid) == wanted, path


def test_links():
    links = {
        each.relative_to(SHARE).as_posix(): os.fspath(each.readlink()) for each in SHARE.rglob("*") if each.is_symlink()
    }
    assert links == {
        "docs/run": "../bin/run",
        "docs/absolute": "/app/share/docs",
        "dropbox/roundabout": "/app/share/../share/bin",
    }
    outside = Path("/app/outside/target").lstat()
    assert (stat.S_IMODE(outside.st_mode), outside.st_uid, outside.st_gid) == (0o640, 1000, 1000)


def test_list_of_set_bits():
    assert Path("/app/suid.txt").read_text() == "a b/private/file with blank\nbin/binary\nbin/run\nbin/sgid\n"


def test_nothing_is_lost():
    assert Path("/app/suid.txt").is_file(), "nothing was done"
    assert {path: (SHARE / path).read_bytes() for path in FILES} == {path: data for path, (data, _) in FILES.items()}
    found = {each.relative_to(SHARE).as_posix() for each in SHARE.rglob("*") if not each.is_symlink()}
    assert found == {*FILES, *FOLDERS}
