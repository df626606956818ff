"""If these fail, every account of a machine can run containers as root through the server of another on loopback."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from sandbox.http.application import create_application
from sandbox.http.auth import Access, check_access
from sandbox.http.peer_account import find_peer_account
from tests.support.network.http_servers import serving
from tests.support.other_user import needs_root, run_as_nobody

IMPORTS = "import encodings.idna, urllib.error, urllib.request"
ASK = """
import sys
request = urllib.request.Request(sys.argv[1] + "/metrics", headers={"Authorization": "Bearer " + sys.argv[2]})
try:
    with urllib.request.urlopen(request) as answer:
        print(answer.status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
TOKEN = "0123456789abcdef"


@asynccontextmanager
async def running() -> AsyncGenerator[None]:
    yield


async def ask_as_nobody(access: Access) -> str:
    app = create_application("any", [], running, lambda: b"", access)
    async with serving(app) as url:
        return await asyncio.to_thread(run_as_nobody, IMPORTS, ASK, url, access.token)


@needs_root
async def test_another_account_is_refused_in_words_where_no_token_is_set() -> None:
    refused = await ask_as_nobody(check_access("127.0.0.1", "", no_auth=False))
    assert refused.startswith("403 ")
    assert "account 65534" in refused
    assert "LONGSHORE_SANDBOX_TOKEN" in refused


@needs_root
@pytest.mark.parametrize(
    "access", [check_access("127.0.0.1", TOKEN, no_auth=False), check_access("127.0.0.1", "", no_auth=True)]
)
async def test_another_account_is_served_with_the_token_or_where_everyone_is(access: Access) -> None:
    assert await ask_as_nobody(access) == "200"


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_the_account_of_a_connection_is_known_until_it_is_closed(host: str, family: socket.AddressFamily) -> None:
    with socket.create_server((host, 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2])
        accepted, peer = server.accept()
        with client, accepted:
            assert find_peer_account(peer[:2], accepted.getsockname()[:2]) == os.geteuid()
            client.close()
            assert find_peer_account(peer[:2], accepted.getsockname()[:2]) is None
