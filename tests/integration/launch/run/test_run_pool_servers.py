"""If this fails, a run cannot take its sandboxes from a pool server, or starts containers of its own all the same."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sandbox.host_record import SandboxHost
from sandbox.pool.leases import LeaseLimits
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.providers.interface import LocalProvider
from tests.support.network.http_servers import pool_server
from tests.support.runs.cluster_runs import MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]


async def test_a_run_trains_on_episodes_in_the_sandboxes_of_a_pool_server(
    mini_runs: MiniRuns, docker_engine: SandboxHost, tmp_path: Path
) -> None:
    settings = PoolSettings(f"test-run-{os.getpid()}", "test", 8)
    async with SandboxPool(settings, docker_engine) as pool, pool_server(LocalProvider(pool), tmp_path) as (url, _):
        keys = ("--set", "sandbox.provider=pool", "--set", "evaluation.tasks_per_family=0", "--steps", "1")
        run = mini_runs.start("servers", *keys, env={"WORKER_URLS": url})
        assert (await asyncio.to_thread(run.succeed))["steps"] == 1
        assert pool.statistics().started >= 16
    assert_accounting_balances(run.path)
    counted = run.events("sandbox.counted")
    assert max(event["started"] for event in counted) >= 16


async def test_groups_begin_when_there_is_a_slot_for_each_of_their_episodes(
    mini_runs: MiniRuns, docker_engine: SandboxHost, tmp_path: Path
) -> None:
    """And give the places back: a server with room for one and a half groups is enough for all."""
    settings, limits = PoolSettings(f"test-group-{os.getpid()}", "test", 6), LeaseLimits(tasks=6, runs_per_task=1)
    async with (
        SandboxPool(settings, docker_engine) as pool,
        pool_server(LocalProvider(pool), tmp_path, limits) as (url, service),
    ):
        keys = ("sandbox.provider=pool", f"sandbox.urls={url}", "sandbox.group_slots=true")
        sets = [word for key in (*keys, "evaluation.tasks_per_family=0") for word in ("--set", key)]
        run = mini_runs.start("groups", *sets, "--steps", "1")
        assert (await asyncio.to_thread(run.succeed))["steps"] == 1
        assert service.table.reserved_slots() == {}
    assert_accounting_balances(run.path)
    assert len(run.events("sandbox.started")) >= 16
    assert not run.events("episode.failed")
