"""If these fail, a person whose LONGSHORE_HOME cannot be used gets a traceback instead of what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import UserError
from sandbox.host import ensure_host
from sandbox.host_record import HostSettings


def test_a_home_that_cannot_be_written_to_is_one_line_with_the_cause(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = r"file/home: Not a directory \(`ls -ld \S+/file` shows why\); set LONGSHORE_HOME"
    with pytest.raises(UserError, match=said):
        ensure_host(HostSettings(tmp_path / "file" / "home"))
