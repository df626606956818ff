"""If these fail, one full or dead pool server stops a run that has others, or a group is split."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import SandboxStartError, TaskFault
from sandbox.pool.leases import LeaseLimits
from sandbox.providers.interface import open_sandbox
from sandbox.providers.pool_servers import PoolServers
from sandbox.tasks.task import Task
from tests.support.fakes.fake_judge import unreachable_url
from tests.support.fakes.fake_provider import FakeProvider
from tests.support.network.http_servers import pool_server

ONE = LeaseLimits(tasks=1, runs_per_task=1)


async def test_a_tasks_sandboxes_are_on_one_server_and_tasks_are_spread(tmp_path: Path) -> None:
    one, other = FakeProvider(), FakeProvider()
    async with (
        pool_server(one, tmp_path / "one") as (first, _),
        pool_server(other, tmp_path / "other") as (second, _),
        PoolServers((first, second), acquire_s=60.0) as servers,
    ):
        for number in range(16):
            for _ in range(3):
                async with open_sandbox(servers, Task(f"t-{number}", "")):
                    pass
    there = [{sandbox.task.id for sandbox in provider.opened} for provider in (one, other)]
    assert not there[0] & there[1]
    assert all(there)
    assert len(one.opened) + len(other.opened) == 48


async def test_a_full_or_dead_server_is_skipped(tmp_path: Path) -> None:
    dead = unreachable_url().removesuffix("/v1")
    async with (
        pool_server(FakeProvider(), tmp_path / "one", ONE) as (first, _),
        pool_server(FakeProvider(), tmp_path / "other", ONE) as (second, _),
        PoolServers((first, dead, second), acquire_s=3.0) as servers,
        open_sandbox(servers, Task("t", "")),
        open_sandbox(servers, Task("t", "")),
    ):
        with pytest.raises(SandboxStartError) as caught:
            await servers.open(Task("t", ""))
    assert all(url in str(caught.value) for url in (first, dead, second))


async def test_a_task_fault_is_not_retried_on_another_server(tmp_path: Path) -> None:
    providers = [FakeProvider(open_error=TaskFault("its setup fails")) for _ in range(2)]
    async with (
        pool_server(providers[0], tmp_path / "one") as (first, _),
        pool_server(providers[1], tmp_path / "other") as (second, _),
        PoolServers((first, second), acquire_s=60.0) as servers,
    ):
        with pytest.raises(TaskFault, match="its setup fails"):
            await servers.open(Task("t", ""))
