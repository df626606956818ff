"""Package indexes through the proxy: paths that name another server, and pages whose links lead back to the proxy.

A client that speaks TLS to an index itself gets nothing from the cache. So it is pointed at
``http://127.0.0.1:PORT/~/https/HOST/PATH``: the proxy speaks TLS, keeps the response, and rewrites the absolute links
of index pages to such paths while they pass, holding only a small piece of a page of any size.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable

from yarl import URL

PROXIED_PATH_PREFIX = "/~/"
_PATH = re.compile(r"^/~/(https?)/([^/?#]+)(/[^#]*)?$")
_LINK = re.compile(rb"\b(https?)://([A-Za-z0-9.:\[\]-]{1,255})(?=[/\"'?#])")
_MOST_LINK_BYTES = len("https://") + 255 + 1
_PAGES = ("text/html", "application/json", "application/vnd.pypi.simple", "application/vnd.npm")


def proxied_url(path: str) -> URL | None:
    """Return the URL that a proxied path stands for; None for another path."""
    found = _PATH.match(path)
    return URL(f"{found[1]}://{found[2]}{found[3] or '/'}", encoded=True) if found else None


def proxied_path(proxy_url: str, url: str) -> str:
    """Return the proxied path of a URL; ``proxy_url`` is the proxy's ``http://host:port``."""
    return re.sub(r"^(https?)://", rf"{proxy_url}{PROXIED_PATH_PREFIX}\1/", url)


def is_index_page(content_type: str) -> bool:
    """Return whether a response of this type may hold links to rewrite."""
    return content_type.lower().startswith(_PAGES)


class LinkRewriter:
    """Rewrites one page piece by piece, with the same result as for the whole."""

    def __init__(self, proxy_url: str) -> None:
        self._path = f"{proxy_url}{PROXIED_PATH_PREFIX}".encode()
        self._held, self._at = b"", 0
        """Bytes that are not returned yet start at ``_at``; the byte before tells whether a word begins there."""

    def feed(self, piece: bytes, *, last: bool = False) -> bytes:
        """Add a piece and return what is final of the page by now; all of it with ``last``."""
        held, at = self._held + piece, self._at
        known = len(held) if last else max(at, len(held) - _MOST_LINK_BYTES)
        out: list[bytes] = []
        for found in _LINK.finditer(held, at):
            if found.start() >= known:
                break
            out += (held[at : found.start()], self._path, found[1], b"/", found[2])
            at = found.end()
        out.append(held[at:known])
        at = max(at, known)
        self._held, self._at = held[max(at - 1, 0) :], min(at, 1)
        return b"".join(out)


async def rewrite_links(page: AsyncIterable[bytes], proxy_url: str) -> AsyncGenerator[bytes]:
    """Rewrite the links of a page."""
    rewriting = LinkRewriter(proxy_url)
    async for piece in page:
        yield rewriting.feed(piece)
    yield rewriting.feed(b"", last=True)
