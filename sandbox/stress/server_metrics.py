"""Reads a pool server's metrics."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus

import aiohttp

from protocol.errors import UserError
from sandbox.http.auth import TOKEN_VARIABLE

_ASK_S = 30.0


class PoolServerMetrics:
    """Client of a pool server's ``GET /metrics``."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url, self.token = url, token

    async def read(self, name: str) -> float:
        """Return one gauge. Raises UserError if no pool server answers."""
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            async with (
                asyncio.timeout(_ASK_S),
                aiohttp.ClientSession() as http,
                http.get(f"{self.url}/metrics", headers=headers) as response,
            ):
                text = await response.text()
                if response.status == HTTPStatus.UNAUTHORIZED:
                    raise UserError(f"{self.url} requires its token: set {TOKEN_VARIABLE}, or name --token-file")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UserError(
                f"no pool server answers at {self.url} ({type(error).__name__}): start `longshore server`"
            ) from error
        found = re.search(rf"^longshore_sandbox_{name} (\S+)$", text, re.MULTILINE)
        if found is None:
            raise UserError(f"{self.url} is not a pool server: start one with `longshore server`, and pass its URL")
        return float(found[1])
