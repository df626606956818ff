"""If this fails, a run cannot take its sandboxes from a pool server, or starts containers of its own all the same."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sandbox.host import Host
from sandbox.pool import PoolSettings, SandboxPool
from sandbox.provider import LocalProvider
from tests.support.books import assert_books_balance
from tests.support.cluster_runs import MiniRuns
from tests.support.http_servers import pool_server

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]


async def test_a_run_trains_on_what_its_agents_did_in_a_servers_sandboxes(
    mini_runs: MiniRuns, docker_engine: Host, tmp_path: Path
) -> None:
    settings = PoolSettings(f"test-run-{os.getpid()}", "test", 8)
    async with SandboxPool(settings, docker_engine) as pool, pool_server(LocalProvider(pool), tmp_path) as (url, _):
        keys = ("--set", "sandbox.provider=pool", "--set", "evaluation.tasks_per_family=0", "--steps", "1")
        run = mini_runs.start("servers", *keys, env={"WORKER_URLS": url})
        assert (await asyncio.to_thread(run.succeed))["steps"] == 1
        assert pool.statistics().started >= 16
    assert_books_balance(run.path)
    counted = run.events("sandbox.stats")
    assert max(event["started"] for event in counted) >= 16
