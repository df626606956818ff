"""If these fail, a person looks for the reason why a folder cannot be written to in the wrong place."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from protocol.errors import UserError
from protocol.files.filesystem import explain_write_errors


@pytest.mark.parametrize(
    ("number", "command"),
    [
        (errno.EROFS, "findmnt -T"),
        (errno.ENOSPC, "df -h"),
        (errno.EDQUOT, "df -h"),
        (errno.EACCES, "ls -ld"),
        (errno.ENOTDIR, "ls -ld"),
    ],
)
def test_the_cause_comes_with_the_command_that_shows_it(tmp_path: Path, number: int, command: str) -> None:
    """The command names a folder that exists."""
    folder = tmp_path / "missing"
    with pytest.raises(UserError) as caught, explain_write_errors(folder, "choose another"):
        raise OSError(number, os.strerror(number), str(folder))
    why = os.strerror(number)
    assert str(caught.value) == f"cannot write to {folder}: {why} (`{command} {tmp_path}` shows why); choose another"
