"""If these fail, every pool runs a proxy that nothing needs, or two sessions have a proxy each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from protocol.errors import UserError
from sandbox.egress_proxy.lazy_proxy import LazyEgressProxy
from sandbox.egress_proxy.settings import EgressProxySettings


async def test_there_is_none_until_somebody_asks_and_then_one(tmp_path: Path):
    async with LazyEgressProxy(tmp_path / "egress_proxy", EgressProxySettings()) as lazy_proxy:
        assert lazy_proxy.statistics() is None
        assert lazy_proxy.environment()["http_proxy"]
        assert not (tmp_path / "egress_proxy").exists()
        async with asyncio.TaskGroup() as group:
            pending = [group.create_task(lazy_proxy.get()) for _ in range(3)]
        assert len({each.result() for each in pending}) == 1
        assert lazy_proxy.statistics() is not None


async def test_a_proxy_that_cannot_keep_its_files_is_an_error_of_who_asks(tmp_path: Path):
    (tmp_path / "file").write_text("")
    async with LazyEgressProxy(tmp_path / "file" / "egress_proxy", EgressProxySettings()) as lazy_proxy:
        for _ in range(2):
            with pytest.raises(UserError, match="cannot be created"):
                await lazy_proxy.get()


async def test_who_is_cancelled_while_it_opens_does_not_close_it_for_others(tmp_path: Path):
    async with LazyEgressProxy(tmp_path / "egress_proxy", EgressProxySettings()) as lazy_proxy:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(lazy_proxy.get())
            second = group.create_task(lazy_proxy.get())
            await asyncio.sleep(0)
            first.cancel()
        assert second.result() is await lazy_proxy.get()
