"""If this fails, the stress command cannot use a pool server that requires a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import UserError
from sandbox.http.auth import check_access
from sandbox.stress.sandbox_sources import FAULT_TASK, open_server_source
from sandbox.stress.server_metrics import PoolServerMetrics
from tests.support.fakes.fake_provider import FakeProvider
from tests.support.network.http_servers import pool_server

TOKEN = "0123456789abcdef"


async def test_metrics_and_sessions_both_send_the_servers_token(tmp_path: Path):
    guarded = check_access("127.0.0.1", TOKEN, no_auth=False)
    async with pool_server(FakeProvider(), tmp_path, access=guarded) as (url, _):
        async with open_server_source(PoolServerMetrics(url, TOKEN), 1) as place:
            sandbox = await place.open(FAULT_TASK)
            assert (await sandbox.run("echo", 5)).output == "echo\n"
            await sandbox.close()
        for token in ("", "another"):
            with pytest.raises(UserError, match="--token-file"):
                await PoolServerMetrics(url, token).read("lease_slots")
