"""If these fail, neither the figures nor the verdict of the stress command can be trusted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.docker.engine import DockerEngine
from sandbox.host_record import SandboxHost
from sandbox.http.auth import TOKEN_VARIABLE
from sandbox.stress.faults import FAULTS
from sandbox.stress.private_engine import why_unavailable

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
ROOT = Path(__file__).parents[4]
NEEDS_OWN_ENGINE = {"shim-kill", "dockerd-kill", "dockerd-stop"}


async def started(module: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments,
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


async def stressed(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Return exit code, JSON object and standard error."""
    process = await started("sandbox.stress", "--json", *arguments)
    out, err = await process.communicate()
    assert out.count(b"\n") == 1, out
    return process.returncode or 0, json.loads(out), err.decode()


@pytest.mark.slow
async def test_a_small_run_accounts_for_every_answer_and_container(engine: DockerEngine):
    before = await engine.inventory()
    code, found, stderr = await stressed("--sessions", "16", "--duration-s", "2")
    assert code == 0, stderr
    assert (found["live_peak"], found["wrong_answers"], found["leaked_containers"]) == (16, 0, 0)
    assert found["commands"] > 16
    for key in ("command_vs_exec", "command_vs_pipe", "start_vs_floor", "bytes_per_session"):
        assert found[key] is not None
    assert found["acquire_ms"]["p50"] > 0
    assert "one command at a time" in stderr
    assert (await engine.inventory()).volumes <= before.volumes


async def test_a_wrong_option_and_a_missing_server_are_reported_in_one_line():
    for arguments in (("--sessions", "-3"), ("--server", "http://127.0.0.1:9")):
        code, found, stderr = await stressed(*arguments)
        assert code == found["exit_code"] == 2
        assert stderr == f"error: {found['error']}\n"


@pytest.mark.slow
async def test_an_interrupt_still_reports_and_leaves_nothing(engine: DockerEngine):
    before = await engine.inventory()
    process = await started("sandbox.stress", "--json", "--sessions", "2", "--duration-s", "3600")
    assert process.stderr is not None
    while not (await process.stderr.readline()).startswith(b"load:"):
        assert process.returncode is None
    process.send_signal(signal.SIGINT)
    out, _ = await process.communicate()
    assert process.returncode == 130
    found = json.loads(out)
    assert (found["live_peak"], found["leaked_containers"]) == (2, 0)
    assert (await engine.inventory()).containers <= before.containers


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.parametrize("fault", FAULTS)
async def test_each_fault_is_accounted_for(fault: str, docker_engine: SandboxHost):
    if fault in NEEDS_OWN_ENGINE and (why := why_unavailable(docker_engine.docker_url)):
        pytest.skip(why)
    code, found, stderr = await stressed("--sessions", "4", "--duration-s", "1", "--faults", fault)
    assert code == 0, stderr
    tally = found["faults"][fault]
    assert tally["injected"] == 4
    assert tally["resumed"] + tally["lost_typed"] == 4
    if fault not in ("shim-kill", "disk-full"):  # what ends these depends on the engine and on its storage
        assert tally["resumed"] == 4


@pytest.mark.slow
@pytest.mark.chaos
async def test_stress_works_through_a_pool_server_with_a_token(
    tmp_path: Path, docker_engine: SandboxHost, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(TOKEN_VARIABLE, "0123456789abcdef")
    server = await started("sandbox.server", "--port", "0", "--state", str(tmp_path), "--warm", "2")
    try:
        assert server.stdout is not None
        url = (await server.stdout.readline()).decode().strip()
        code, found, stderr = await stressed(
            "--sessions",
            "4",
            "--duration-s",
            "1",
            "--server",
            url,
            "--faults",
            "client-kill",
            "hung-exec",
            "dockerd-kill",
        )
        assert code == 0, stderr
        assert found["acquire_ms"]["p50"] > 0
        assert found["faults"]["client-kill"]["resumed"] == found["faults"]["hung-exec"]["resumed"] == 4
        assert found["faults"]["dockerd-kill"] == {"injected": 0, "resumed": 0, "lost_typed": 0, "skipped": 4}
    finally:
        server.terminate()
        await server.communicate()
