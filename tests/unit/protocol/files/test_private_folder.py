"""If these fail, another account of a machine chooses what a run reads and writes there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from protocol.files.filesystem import UntrustedFolderError, make_private_folder
from tests.support.other_user import needs_root

OTHER = 65534


def test_the_folder_is_private_and_may_be_made_again(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        for _ in range(2):
            make_private_folder(tmp_path / "longshore" / "run-1")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / "longshore" / name).stat().st_mode) for name in ("", "run-1")]
    assert modes == [0o755, 0o700]


def test_a_folder_may_stand_where_everybody_may_write_but_not_rename(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    make_private_folder(tmp_path / "run-1")


@needs_root
@pytest.mark.parametrize("made", ["longshore", "longshore/run-1"])
def test_a_folder_that_another_account_made_is_refused(tmp_path: Path, made: str) -> None:
    (tmp_path / "longshore" / "run-1").mkdir(0o700, parents=True)
    os.chown(tmp_path / made, OTHER, OTHER)
    with pytest.raises(UntrustedFolderError):
        make_private_folder(tmp_path / "longshore" / "run-1")


@needs_root
def test_a_link_that_another_account_made_is_refused(tmp_path: Path) -> None:
    """It can lead elsewhere a moment later."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "longshore").symlink_to(tmp_path / "mine")
    os.lchown(tmp_path / "longshore", OTHER, OTHER)
    with pytest.raises(UntrustedFolderError, match="longshore belongs to another account"):
        make_private_folder(tmp_path / "longshore" / "run-1")


@pytest.mark.parametrize(("folder", "mode"), [(".", 0o777), ("run-1", 0o777), ("run-1", 0o755)])
def test_a_folder_that_others_can_enter_or_replace_is_refused(tmp_path: Path, folder: str, mode: int) -> None:
    (tmp_path / "run-1").mkdir(0o700)
    (tmp_path / folder).chmod(mode)
    with pytest.raises(UntrustedFolderError):
        make_private_folder(tmp_path / "run-1")


def test_a_link_is_no_private_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(0o700)
    (tmp_path / "run-1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UntrustedFolderError):
        make_private_folder(tmp_path / "run-1")
