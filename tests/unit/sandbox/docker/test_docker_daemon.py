"""If these fail, a user outside the docker group is told to start an engine that is running."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from protocol.errors import UserError
from sandbox.docker.address import UnixHttpConnection
from sandbox.docker.daemon import (
    SYSTEM_SOCKET,
    DockerAccessDeniedError,
    ReportLine,
    engine_answers,
    find_answering_engine,
    start_engine,
)
from sandbox.host import find_base_image
from sandbox.host_record import HostSettings
from sandbox.images.base_image import base_image_tag, build_base_image


def refuse(connection: UnixHttpConnection) -> None:
    if "forbidden" in connection.socket_path:
        raise PermissionError(13, "Permission denied")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(connection.socket_path)


def test_an_inaccessible_engine_is_named_with_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnixHttpConnection, "connect", refuse)
    with pytest.raises(
        DockerAccessDeniedError, match=r"may not use .*unix:///forbidden.*usermod -aG docker \$USER.*log in"
    ):
        engine_answers("unix:///forbidden")
    with pytest.raises(DockerAccessDeniedError):
        find_answering_engine(("unix:///forbidden", "unix:///absent"))


def test_another_engine_that_answers_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(url: str) -> bool:
        if url == "a":
            raise DockerAccessDeniedError(url)
        return True

    monkeypatch.setattr("sandbox.docker.daemon.engine_answers", answers)
    assert find_answering_engine(("a", "b")) == "b"


def test_a_missing_socket_is_not_an_answering_engine(tmp_path: Path) -> None:
    assert not engine_answers(f"unix://{tmp_path / 'absent'}")


@pytest.mark.parametrize(
    ("configured", "present", "pullable", "used", "does"),
    [
        ("mine:1", {"mine:1"}, False, "mine:1", []),
        ("mine:1", set(), True, "mine:1", ["pull"]),
        ("mine:1", set(), False, base_image_tag(), ["pull", "build"]),
        ("mine:1", {base_image_tag()}, False, base_image_tag(), ["pull"]),
        ("", {base_image_tag()}, False, base_image_tag(), []),
        ("", set(), False, base_image_tag(), ["build"]),
    ],
)
def test_a_base_image_is_used_if_present_or_pulled_or_built(
    monkeypatch: pytest.MonkeyPatch, configured: str, present: set[str], pullable: bool, used: str, does: list[str]
) -> None:
    """An unreachable registry costs a line, not the set-up."""
    done: list[str] = []
    lines: list[str] = []

    def pull(url: str, what: str, **query: str) -> None:
        done.append("pull")
        if not pullable:
            raise UserError(f"could not {what}: no route\nto host")

    def build(url: str, say: ReportLine) -> str:
        done.append("build")
        return base_image_tag()

    monkeypatch.setattr("sandbox.docker.daemon.has_image", lambda url, name: name in present)
    monkeypatch.setattr("sandbox.docker.daemon.create_image", pull)
    monkeypatch.setattr("sandbox.images.base_image.build_base_image", build)
    assert find_base_image(HostSettings(Path("home"), base_image=configured), "unix:///engine", lines.append) == used
    assert done == does
    warnings = [line for line in lines if "no route to host; the one built from Debian packages is used" in line]
    assert len(warnings) == (does[:1] == ["pull"] and not pullable)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Fake a machine with root or not, and with a program such as apt-get."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "apt-get" else None)
    return monkeypatch


def ignored(line: str) -> None:
    del line


@pytest.mark.parametrize("known", [(), ("docker-cli",)])
def test_the_docker_command_comes_with_the_engine_on_every_release(
    machine: pytest.MonkeyPatch, tmp_path: Path, known: Sequence[str]
) -> None:
    """From Debian 13 on it is a separate package."""
    installed: list[str] = []

    def run(arguments: Sequence[str], what: str, **options: object) -> str:
        match arguments:
            case ("apt-cache", "show", package) if package not in known:
                raise UserError(f"could not {what}")
            case ("apt-get", "install", *words):
                installed.extend(word for word in words if not word.startswith("-"))
            case _:
                pass
        return ""

    machine.setattr("sandbox.docker.daemon.run_program", run)
    machine.setattr("sandbox.docker.daemon.engine_answers", lambda url: True)
    assert start_engine(tmp_path, tmp_path, ignored) == (SYSTEM_SOCKET, 0)
    assert installed == ["docker.io", "iptables", *known]


def test_a_user_who_cannot_build_the_base_image_gets_instructions(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(
        UserError, match=r"as root run `apt-get install mmdebstrap .*export LONGSHORE_BASE_IMAGE=debian:bookworm"
    ):
        build_base_image("unix:///engine", ignored)


def test_root_without_apt_is_not_advised_to_use_it(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=r"docker\.io and iptables are needed.*set DOCKER_HOST") as caught:
        start_engine(tmp_path, tmp_path, ignored)
    assert "apt-get install" not in str(caught.value)
