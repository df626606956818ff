"""If these fail, ``longshore host`` does not leave a usable machine, or does not say what to do when it
cannot."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest

from protocol.cli.exit_codes import main_guard
from protocol.errors import UserError
from sandbox.docker import daemon, owner
from sandbox.host import COMMAND, ensure_host, report_status, stop_engine
from sandbox.host_record import HostSettings, SandboxHost, current_host
from sandbox.pool.disk_bound import DISK_BOUND_DESCRIPTIONS, DiskBound
from tests.support.commands import call_json

pytestmark = pytest.mark.docker


def test_a_second_setup_prints_two_lines_and_changes_nothing(docker_engine: SandboxHost):
    lines: list[str] = []
    assert ensure_host(say=lines.append) == docker_engine
    assert len(lines) == 2
    assert current_host() == docker_engine


def test_a_private_engine_starts_and_stops_without_touching_another(docker_engine: SandboxHost, tmp_path: Path):
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("only root with dockerd installed can start an engine")
    runtime = Path(f"/run/longshore-test-{os.getpid()}")  # a socket's path must be short
    try:
        url, pid = daemon.start_engine(tmp_path / "engine", runtime, lambda line: None)
        record = dataclasses.asdict(docker_engine) | {"docker_url": url, "engine_owner": owner.owner_of_process(pid)}
        (tmp_path / "host.json").write_text(json.dumps(record, default=str))
        settings = HostSettings(home=tmp_path)
        assert current_host(settings).docker_url == url
        assert daemon.engine_answers(url)
        assert stop_engine(settings, lambda line: None)
        assert not daemon.engine_answers(url)
        lines: list[str] = []
        assert not stop_engine(settings, lines.append)
        assert "nothing to stop" in lines[0]
    finally:
        shutil.rmtree(runtime, ignore_errors=True)
    assert daemon.engine_answers(docker_engine.docker_url)


def test_an_unreachable_docker_host_is_a_user_error(tmp_path: Path):
    with pytest.raises(UserError, match="DOCKER_HOST=unix:///nowhere"):
        ensure_host(HostSettings(home=tmp_path, docker_url="unix:///nowhere"))


def test_a_machine_that_was_never_set_up_says_which_command_sets_it_up(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("LONGSHORE_HOME", str(tmp_path))
    assert main_guard(lambda: COMMAND.call(["status"])) == 1
    assert "longshore host up" in capsys.readouterr().out


def test_the_status_names_the_mechanism_that_enforces_the_disk_limit(docker_engine: SandboxHost):
    lines: list[str] = []
    status = report_status(HostSettings.from_environment(), lines.append)
    assert status.ready
    assert any(lines[-1] == f"disk limit: {bound}: {DISK_BOUND_DESCRIPTIONS[bound]}" for bound in DiskBound)


def test_each_action_has_one_json_object(docker_engine: SandboxHost, capfd: pytest.CaptureFixture[str]):
    up = call_json(capfd, "sandbox.host", "up").output
    assert (up["docker_url"], up["base_image"]) == (docker_engine.docker_url, docker_engine.base_image)
    assert call_json(capfd, "sandbox.host", "status").output.items() >= ({"ready": True} | up).items()
    assert call_json(capfd, "sandbox.host", "clean", "no-such-run").output == {"removed": 0}
