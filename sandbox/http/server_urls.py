"""URLs of several servers in one text, and the order in which each key prefers them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from urllib.parse import urlsplit

from protocol.errors import UserError


def parse_server_urls(text: str) -> tuple[str, ...]:
    """Parse comma-separated URLs of servers; duplicates are dropped.  Raises UserError."""
    urls = tuple(dict.fromkeys(url.strip().rstrip("/") for url in text.split(",") if url.strip()))
    if not urls:
        raise UserError("no server is set: set WORKER_URLS or --servers to http://host:18081,http://host:18081")
    for url in urls:
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise UserError(f"server {url!r} is not a URL: write http://host:port")
    return urls


def rank_urls(key: str, urls: Iterable[str]) -> list[str]:
    """Sort URLs by rendezvous hashing, best first: a key keeps its first URL when others are added or removed."""

    def weight(url: str) -> bytes:
        return hashlib.sha1(f"{key}\0{url}".encode(), usedforsecurity=False).digest()

    return sorted(urls, key=weight, reverse=True)
