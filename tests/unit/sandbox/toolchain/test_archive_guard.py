"""If these fail, an agent's archive that tests extract gives them files of their own for answers, or replaces them."""

from __future__ import annotations

import contextlib
import shutil
import tarfile
from pathlib import Path

import pytest

from sandbox.toolchain.in_container.archive_guard import keep_archives_inside


@pytest.fixture(autouse=True)
def guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tarfile.TarFile, "extraction_filter", None)
    keep_archives_inside()


def _archive(folder: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(folder / "answer.tar", "w") as archive:
        for each in members:
            archive.addfile(each)
    return folder / "answer.tar"


def _member(name: str, *, link: str = "", kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


def too_deep() -> list[tarfile.TarInfo]:
    """Return links whose full path is longer than the system allows, and one that leads out from their end."""
    name, members, above = "d" * 247, list[tarfile.TarInfo](), ""
    for step in "abcdefghijklmnop":
        members.append(_member(f"{above}{name}", kind=tarfile.DIRTYPE))
        members.append(_member(f"{above}{step}", link=name, kind=tarfile.SYMTYPE))
        above += f"{step}/"
    last = f"{above}{'l' * 254}"
    members.append(_member(last, link="../" * 16, kind=tarfile.SYMTYPE))
    members.append(_member("answer", link=f"{last}/../tests/expected", kind=tarfile.SYMTYPE))
    return members


@pytest.mark.parametrize(
    "member",
    [
        _member("answer", link="/tests/expected", kind=tarfile.SYMTYPE),
        _member("answer", link="../tests/expected", kind=tarfile.SYMTYPE),
        _member("answer", link="../tests/expected", kind=tarfile.LNKTYPE),
        _member("../tests/expected"),
    ],
)
def test_members_that_lead_out_of_the_folder_are_refused(tmp_path: Path, member: tarfile.TarInfo):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "expected").write_text("42")
    archive = _archive(tmp_path, member)
    with pytest.raises(tarfile.FilterError):
        shutil.unpack_archive(archive, tmp_path / "out")
    assert (tmp_path / "tests" / "expected").read_text() == "42"


@pytest.mark.parametrize(
    "members",
    [
        [
            _member("answer", link="here/../tests/expected", kind=tarfile.SYMTYPE),
            _member("here", link=".", kind=tarfile.SYMTYPE),
        ],
        [
            _member("deep/", kind=tarfile.DIRTYPE),
            _member("here", link="deep", kind=tarfile.SYMTYPE),
            _member("here/answer", link="../tests/expected", kind=tarfile.SYMTYPE),
            _member("answer", link="here/answer", kind=tarfile.SYMTYPE),
        ],
        too_deep(),
    ],
    ids=["a link that another leads through", "a link below a link", "links too long for the system"],
)
def test_links_do_not_lead_out_together(tmp_path: Path, members: list[tarfile.TarInfo]):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "expected").write_text("42")
    with contextlib.suppress(tarfile.FilterError):
        shutil.unpack_archive(_archive(tmp_path, *members), tmp_path / "out")
    assert not (tmp_path / "out" / "answer").exists()


def test_links_within_the_folder_are_extracted(tmp_path: Path):
    archive = _archive(tmp_path, _member("v1"), _member("latest", link="v1", kind=tarfile.SYMTYPE))
    shutil.unpack_archive(archive, tmp_path / "out")
    assert (tmp_path / "out" / "latest").readlink() == Path("v1")
