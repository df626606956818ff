"""If these fail, a file that a disk has damaged is taken for what was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.files.digests import digest_file, digest_files, find_damage


def test_unchanged_files_pass_the_digest_check(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "large").write_bytes(bytes(range(256)) * 8192)
    files = digest_files(tmp_path, ["empty", "large"])
    assert (files["empty"].bytes, files["large"].bytes) == (0, 2 << 20)
    assert find_damage(tmp_path, files) is None


@pytest.mark.parametrize("place", [0, 1 << 20, (2 << 20) - 1])
def test_every_changed_bit_is_detected(tmp_path: Path, place: int) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(2 << 20))
    files = {"file": digest_file(file)}
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(b"\x01")
    assert (find_damage(tmp_path, files) or "").startswith("file is not what was written: its checksum is ")


def test_missing_and_short_files_are_reported_before_contents_are_read(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(b"some words")
    files = digest_files(tmp_path, ["first", "second"])
    (tmp_path / "first").write_bytes(b"same words")
    (tmp_path / "second").write_bytes(b"some")
    assert find_damage(tmp_path, files) == "second has 4 bytes, and 10 were written"
    (tmp_path / "second").unlink()
    assert find_damage(tmp_path, files) == "second: No such file or directory"
