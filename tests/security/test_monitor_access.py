"""Who may read a run's page.  If this fails, others of the machine do, or a link leads a reader's browser elsewhere."""

from __future__ import annotations

import io
from pathlib import Path
from urllib.parse import urljoin

import aiohttp
import pytest
from rich.console import Console
from starlette.datastructures import Headers
from starlette.types import Message

from launch.bench.monitor.monitor_process import serve_monitor as serve_benchmarked_monitor
from launch.bench.monitor.synthetic_run import write_synthetic_run
from launch.monitor.web.access import TokenMiddleware
from launch.run.arguments import parse_cluster_arguments
from launch.run.services import serve_monitor
from launch.run_records.run_context import RunContext
from launch.run_records.run_directory import RunDirectory
from protocol.events import EventLog
from tests.support.pages.monitors import start_monitor


async def refuse(*_: object) -> None:
    pytest.fail("it was let in")


@pytest.mark.parametrize(
    "path", ["//evil.example/", "///evil.example/", "//evil.example/%2e%2e", "/\\evil.example", "/"]
)
async def test_the_login_leads_nowhere_but_to_this_monitor(path: str) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "query_string": b"token=right", "headers": []}
    await TokenMiddleware(refuse, "right")(scope, refuse, send)
    location = Headers(raw=sent[0]["headers"])["location"]
    assert urljoin("http://127.0.0.1:8000/", location).startswith("http://127.0.0.1:8000/")
    assert "\\" not in location


async def test_a_token_that_was_set_is_asked_for_on_loopback_too(tmp_path: Path) -> None:
    write_synthetic_run(tmp_path / "run", 64)
    with start_monitor(tmp_path / "run", env={"LONGSHORE_MONITOR_TOKEN": "right-token"}) as monitor:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{monitor.url}/api/runs/-/head") as answer:
                assert answer.status == 401
            right = {"Authorization": "Bearer right-token"}
            async with session.get(f"{monitor.url}/api/runs/-/head", headers=right) as answer:
                assert answer.status == 200


async def test_a_run_shows_the_token_on_its_console_and_keeps_it_out_of_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory is archived, and others may read it (``run.shared``)."""
    monkeypatch.setenv("LONGSHORE_MONITOR_TOKEN", "right-token")
    config, shown = parse_cluster_arguments(["demo"]).load_config(), io.StringIO()
    with RunDirectory.create(tmp_path, "demo", "a") as directory:
        events = EventLog(directory.path, "driver-1", "node-0")
        run = RunContext(config, directory, events, Console(file=shown, soft_wrap=True))
        async with serve_monitor(run) as url:
            run.report_started(url)
        events.close()
    assert shown.getvalue() == f"the live monitor, with its token: {url}?token=right-token\n"
    written = b"".join(path.read_bytes() for path in directory.path.rglob("*") if path.is_file())
    assert url.encode() in written
    assert b"right-token" not in written


@pytest.mark.slow
async def test_the_benchmark_of_the_monitor_runs_where_a_token_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGSHORE_MONITOR_TOKEN", "right-token")
    write_synthetic_run(tmp_path / "run", 64)
    async with (
        serve_benchmarked_monitor(tmp_path / "run") as monitor,
        aiohttp.ClientSession() as session,
        session.get(f"{monitor.url}/api/runs/-/head") as answer,
    ):
        assert answer.status == 200
