"""If these fail, an agent whose request is refused is not told why."""

from __future__ import annotations

import asyncio
import http.client
from pathlib import Path

import pytest

from sandbox.egress_proxy.connection import ProxyAccess, serve_connection
from sandbox.egress_proxy.file_cache import FileCache
from sandbox.egress_proxy.rules import AllowList
from sandbox.egress_proxy.upstream import UpstreamClient


def connect_through(port: int, host: str) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.set_tunnel(host, 443)
    client.connect()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("b.example", "403 b.example:443 is not among the hosts that this task allows"),
        ("a" * 300, "403 " + "a" * 200),
    ],
)
async def test_a_refused_tunnel_has_its_reason_in_the_status_line(tmp_path: Path, host: str, reason: str) -> None:
    """Clients show nothing else of the reply."""
    access = ProxyAccess(AllowList(("a.example",)), "http://proxy", lambda _: None)
    async with UpstreamClient(FileCache(tmp_path, 1 << 20)) as upstream:
        server = await asyncio.start_server(
            lambda reader, writer: serve_connection(reader, writer, access, upstream), "127.0.0.1", 0
        )
        async with server:
            with pytest.raises(OSError, match="Tunnel connection failed") as refused:
                await asyncio.to_thread(connect_through, server.sockets[0].getsockname()[1], host)
    assert str(refused.value) == f"Tunnel connection failed: {reason}"
