"""What was recovered, compared with what the repository was made of."""

import hashlib
import zlib
from pathlib import Path

RECOVERED = Path("/app/recovered")
FILES = {
    "bin/unload me": b"#!/bin/sh\necho unload\n",
    "data/a.csv": b"1,2\n9,9\n",
    "data/deep/er/c.bin": bytes(range(256)),
}
LOST = "e5bd1444c433b9e5deae27f73e2b514e87ad0f7b"
REPOSITORY = "ccfe6fb16bad7b5b0b7ee8d5d7b40d742c2d450563c518c2b2eea0d6c2fc1485"


def test_commit():
    assert (RECOVERED / "COMMIT").read_text() == f"{LOST}\n"


def test_files():
    inside = RECOVERED / "files"
    found = {each.relative_to(inside).as_posix(): each.read_bytes() for each in inside.rglob("*") if not each.is_dir()}
    assert found == FILES


def test_modes():
    modes = {path: (RECOVERED / "files" / path).lstat().st_mode & 0o7777 for path in FILES}
    assert modes == {"bin/unload me": 0o755, "data/a.csv": 0o644, "data/deep/er/c.bin": 0o644}


def test_removed():
    assert (RECOVERED / "REMOVED").read_text() == "data/b.csv\nold.txt\n"


def test_repository_is_untouched():
    assert (RECOVERED / "COMMIT").is_file(), "nothing was recovered"
    repo = Path("/app/repo")
    every = sorted(each for each in repo.rglob("*") if not each.is_dir())
    plain = {
        each: zlib.decompress(each.read_bytes()) if "objects" in each.parts else each.read_bytes() for each in every
    }
    whole = hashlib.sha256(b"".join(str(each).encode() + b"\0" + data + b"\0" for each, data in plain.items()))
    assert whole.hexdigest() == REPOSITORY
