"""Package indexes through the gate: paths that name another server, and pages whose links lead back to it.

A client speaks TLS to an index by itself, and nothing can be kept of that.  So it is pointed at
``http://127.0.0.1:PORT/~/https/HOST/PATH`` instead: the gate speaks TLS, keeps the answer, and turns the absolute
links of index pages into paths of this kind, on their way: of a page of any size a piece is held.
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
    """What a path of ours stands for; None for another path."""
    found = _PATH.match(path)
    return URL(f"{found[1]}://{found[2]}{found[3] or '/'}", encoded=True) if found else None


def proxied_path(gate: str, url: str) -> str:
    """The path of ours for an address; ``gate`` is ``http://host:port``."""
    return re.sub(r"^(https?)://", rf"{gate}{PROXIED_PATH_PREFIX}\1/", url)


def is_index_page(content_type: str) -> bool:
    return content_type.lower().startswith(_PAGES)


class LinkRewriter:
    """One page, piece by piece, as if it were rewritten as a whole."""

    def __init__(self, gate: str) -> None:
        self._path = f"{gate}{PROXIED_PATH_PREFIX}".encode()
        self._held, self._at = b"", 0
        """What is not given out yet, from ``_at``; the byte before it tells whether a word begins there."""

    def feed(self, piece: bytes, *, last: bool = False) -> bytes:
        """What is known of the page by now and was not given out before; all of it at its end."""
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


async def rewrite_links(page: AsyncIterable[bytes], gate: str) -> AsyncGenerator[bytes]:
    rewriting = LinkRewriter(gate)
    async for piece in page:
        yield rewriting.feed(piece)
    yield rewriting.feed(b"", last=True)
