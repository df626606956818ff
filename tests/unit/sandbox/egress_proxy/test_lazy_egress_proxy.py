"""If these fail, every pool runs a proxy that nothing needs, or two sessions have a proxy each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from protocol.errors import UserError
from sandbox.egress_proxy.lazy_proxy import LazyEgressProxy
from sandbox.egress_proxy.settings import EgressProxySettings


async def test_the_proxy_is_created_once_on_first_use(tmp_path: Path):
    async with LazyEgressProxy(tmp_path / "egress_proxy", EgressProxySettings()) as lazy_proxy:
        assert lazy_proxy.statistics() is None
        assert lazy_proxy.environment()["http_proxy"]
        assert not (tmp_path / "egress_proxy").exists()
        async with asyncio.TaskGroup() as group:
            pending = [group.create_task(lazy_proxy.get()) for _ in range(3)]
        assert len({each.result() for each in pending}) == 1
        assert lazy_proxy.statistics() is not None


async def test_a_proxy_without_a_usable_folder_raises_an_error_for_each_caller(tmp_path: Path):
    (tmp_path / "file").write_text("")
    async with LazyEgressProxy(tmp_path / "file" / "egress_proxy", EgressProxySettings()) as lazy_proxy:
        for _ in range(2):
            with pytest.raises(UserError, match="cannot be created"):
                await lazy_proxy.get()


async def test_a_cancelled_caller_does_not_close_the_opening_proxy_for_others(tmp_path: Path):
    async with LazyEgressProxy(tmp_path / "egress_proxy", EgressProxySettings()) as lazy_proxy:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(lazy_proxy.get())
            second = group.create_task(lazy_proxy.get())
            await asyncio.sleep(0)
            first.cancel()
        assert second.result() is await lazy_proxy.get()
