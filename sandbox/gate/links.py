"""Package indexes through the gate: paths that name another server, and pages whose links lead back to it.

A client speaks TLS to an index by itself, and nothing can be kept of that.  So it is pointed at
``http://127.0.0.1:PORT/~/https/HOST/PATH`` instead: the gate speaks TLS, keeps the answer, and turns the absolute
links of index pages into paths of this kind.
"""

from __future__ import annotations

import re

from yarl import URL

PREFIX = "/~/"
_PATH = re.compile(r"^/~/(https?)/([^/?#]+)(/[^#]*)?$")
_LINK = re.compile(rb"\b(https?)://([A-Za-z0-9.:\[\]-]+)(?=[/\"'?#])")
_PAGES = ("text/html", "application/json", "application/vnd.pypi.simple", "application/vnd.npm")
MOST_PAGE_BYTES = 64 << 20


def target_of(path: str) -> URL | None:
    """What a path of ours stands for; None for another path."""
    found = _PATH.match(path)
    return URL(f"{found[1]}://{found[2]}{found[3] or '/'}", encoded=True) if found else None


def through(gate: str, url: str) -> str:
    """The path of ours for an address; ``gate`` is ``http://host:port``."""
    return re.sub(r"^(https?)://", rf"{gate}{PREFIX}\1/", url)


def is_page(content_type: str) -> bool:
    return content_type.lower().startswith(_PAGES)


def rewritten(page: bytes, gate: str) -> bytes:
    return _LINK.sub(lambda found: f"{gate}{PREFIX}".encode() + found[1] + b"/" + found[2], page)
