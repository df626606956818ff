"""If these fail, a user outside the docker group is told to start an engine that is running."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sandbox.address import UnixConnection
from sandbox.provision import EngineForbidden, engine_answers, find_engine


def refuse(connection: UnixConnection) -> None:
    if "forbidden" in connection._path:
        raise PermissionError(13, "Permission denied")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(connection._path)


def test_an_engine_that_the_user_may_not_use_is_named_with_the_way_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnixConnection, "connect", refuse)
    with pytest.raises(EngineForbidden, match=r"may not use .*unix:///forbidden.*usermod -aG docker \$USER.*log in"):
        engine_answers("unix:///forbidden")
    with pytest.raises(EngineForbidden):
        find_engine(("unix:///forbidden", "unix:///absent"))


def test_another_engine_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(url: str) -> bool:
        if url == "a":
            raise EngineForbidden(url)
        return True

    monkeypatch.setattr("sandbox.provision.engine_answers", answers)
    assert find_engine(("a", "b")) == "b"


def test_nothing_there_is_no_engine(tmp_path: Path) -> None:
    assert not engine_answers(f"unix://{tmp_path / 'absent'}")
