"""If these fail, a script that watches a run cannot tell what went wrong, or a person gets a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.cli.exit_codes import EXIT_USER
from tests.support.commands import call_command


def test_json_output_of_the_monitor_states_the_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = call_command(capfd, "launch.monitor", tmp_path / "nothing", "--json")
    assert done.returncode == json.loads(done.stdout)["exit_code"] == EXIT_USER
    assert "no run 'nothing' in " in json.loads(done.stdout)["error"]
    assert done.stderr.startswith("error: ")


def test_a_report_of_a_missing_run_is_refused_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = call_command(capfd, "launch.report", tmp_path / "nothing")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (EXIT_USER, "", 1)
    assert "no run 'nothing' in " in done.stderr


@pytest.mark.parametrize(("port", "why"), [("65536", "at most 65535"), ("-1", "at least 0")])
def test_an_invalid_port_is_refused(port: str, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = call_command(capfd, "launch.monitor", tmp_path, f"--port={port}")
    assert (done.returncode, done.stdout) == (EXIT_USER, "")
    message = f"argument --port: must be {why}, not '{port}'; see longshore monitor --help"
    assert done.stderr == f"error: {message}\n"
