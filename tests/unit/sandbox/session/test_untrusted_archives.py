"""If these fail, a tar from a sandbox can write or read outside its folder, or fill its reader's memory."""

from __future__ import annotations

import contextlib
import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.session.files import FileTooLarge, unpack_archive


def archive(*members: tuple[str, bytes, bytes]) -> bytes:
    """Return a tar of these (name, content, kind) members."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(content), "/etc/passwd"
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "a/.."])
def test_a_path_out_of_the_root_is_refused(name: str):
    with pytest.raises(ValueError, match="outside"):
        unpack_archive(archive((name, b"x", tarfile.REGTYPE)))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_members_that_are_not_regular_files_are_left_out(kind: bytes):
    assert unpack_archive(archive(("x", b"", kind), ("./a/f", b"1", tarfile.REGTYPE))) == {"a/f": b"1"}


def test_too_many_bytes_or_files_are_refused():
    two = archive(("a", b"123", tarfile.REGTYPE), ("b", b"45", tarfile.REGTYPE))
    assert unpack_archive(two, max_bytes=5, max_files=2) == {"a": b"123", "b": b"45"}
    for limits in ({"max_bytes": 4}, {"max_files": 1}):
        with pytest.raises(FileTooLarge):
            unpack_archive(two, **limits)


@given(st.binary(max_size=2000), st.integers(0, 1500), st.binary(max_size=40))
def test_a_damaged_archive_raises_only_the_documented_errors(noise: bytes, at: int, patch: bytes):
    good = archive(("a/b", b"x" * 600, tarfile.REGTYPE))
    for bad in (noise, good[:at] + patch + good[at + len(patch) :], good[:at]):
        with contextlib.suppress(ValueError, FileTooLarge):
            for name in unpack_archive(bad):
                assert not name.startswith("/")
                assert ".." not in name.split("/")
