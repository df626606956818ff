"""Downloads a file as a sandbox would get it through the proxy: each redirect is judged like a request."""

from __future__ import annotations

import io
from collections.abc import AsyncIterable
from http import HTTPStatus

from yarl import URL

from sandbox.egress_proxy.cached_file import ResponseHead
from sandbox.egress_proxy.rules import AllowList
from sandbox.egress_proxy.upstream import EgressRefusedError, UpstreamClient, UpstreamError, UpstreamRequest

_MOST_REDIRECTS = 10


async def download(upstream: UpstreamClient, allowed: AllowList, url: URL, most_bytes: int) -> bytes:
    """Return the file, of at most ``most_bytes``. Raises EgressRefusedError, UpstreamError, FetchFailedError."""
    for _ in range(1 + _MOST_REDIRECTS):
        if url.scheme not in {"http", "https"} or not url.host:
            raise EgressRefusedError(f"{url} is not a URL of http or https")
        async with upstream.open_response(allowed, UpstreamRequest("GET", url, ())) as (head, body):
            if head.status == HTTPStatus.OK:
                return await _read(body, most_bytes)
            url = url.join(URL(_location(head)))
    raise UpstreamError(f"more than {_MOST_REDIRECTS} redirects")


def _location(head: ResponseHead) -> str:
    for name, value in head.headers:
        if name.lower() == "location":
            return value
    raise UpstreamError(f"the server answers {head.status}")


async def _read(body: AsyncIterable[bytes], most_bytes: int) -> bytes:
    found = io.BytesIO()  # gives its content without a copy
    async for piece in body:
        found.write(piece)
        if found.tell() > most_bytes:
            raise UpstreamError(f"it is larger than the {most_bytes / (1 << 20):.4g} MiB that are left for this build")
    return found.getvalue()
