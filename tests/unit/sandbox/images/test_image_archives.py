"""If these fail, who names a wrong file for an archive of images is told something that does not help."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest

from sandbox.errors import ImageError
from sandbox.images.archive_digests import check_archive


@pytest.mark.parametrize("content", [b"", b"FROM debian:12\n", b"x" * 2000])
def test_a_file_that_is_no_archive_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "images.tar"
    file.write_bytes(content)
    with pytest.raises(ImageError, match=r"images\.tar is not an archive: name one that longshore images save has"):
        check_archive(file)


def test_archives_that_an_engine_reads_are_left_to_it(tmp_path: Path) -> None:
    plain = tmp_path / "plain.tar"
    with tarfile.open(plain, "w") as tar:
        tar.addfile(tarfile.TarInfo("manifest.json"))
    packed = gzip.compress(plain.read_bytes())
    for content in (plain.read_bytes(), packed, b"\x28\xb5\x2f\xfd" + b"x" * 100):
        (tmp_path / "images.tar").write_bytes(content)
        check_archive(tmp_path / "images.tar")
