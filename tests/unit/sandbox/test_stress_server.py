"""Stress cannot ask a pool server that wants a token when this fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import UserError
from sandbox.edge.auth import access
from sandbox.stress.metrics import Metrics
from sandbox.stress.places import STRUCK_TASK, remote_place
from tests.support.fake_provider import FakeProvider
from tests.support.http_servers import pool_server

TOKEN = "0123456789abcdef"


async def test_a_server_with_a_token_is_shown_it_by_figures_and_sessions_alike(tmp_path: Path):
    guarded = access("127.0.0.1", TOKEN, no_auth=False, name="x")
    async with pool_server(FakeProvider(), tmp_path, access=guarded) as (url, _):
        async with remote_place(Metrics(url, TOKEN), 1) as place:
            seat = await place.open(STRUCK_TASK)
            assert (await seat.run("echo", 5)).output == "echo\n"
            await seat.close()
        for token in ("", "another"):
            with pytest.raises(UserError, match="--token-file"):
                await Metrics(url, token).read("lease_slots")
