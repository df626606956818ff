"""If these fail, `longshore cluster > result.txt` holds nothing."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from launch.run.arguments import parse_cluster_arguments
from launch.run.results import write_results
from launch.run_records.run_context import RunContext
from launch.run_records.run_directory import RunDirectory
from protocol.events import EventLog


def test_the_results_go_to_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    progress = io.StringIO()
    with RunDirectory.create(Path("runs"), "demo", "a") as directory:
        events = EventLog(directory.path, "driver-1", "node-0")
        run = RunContext(parse_cluster_arguments(["demo"]).load_config(), directory, events, Console(file=progress))
        write_results(run, {"ok": False, "failed_checks": ["2 sandboxes are left"]})
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "check failed: 2 sandboxes are left",
        "summary: runs/a/summary.json",
        "report:  runs/a/report.html",
    ]
    assert progress.getvalue() == ""
