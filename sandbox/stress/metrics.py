"""What a pool server tells of itself."""

from __future__ import annotations

import asyncio
import re

import aiohttp

from protocol.errors import UserError

_ASK_S = 30.0


class Metrics:
    """``GET /metrics`` of a pool server."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def read(self, name: str) -> float:
        """One gauge.  Raises UserError when no pool server answers."""
        try:
            async with (
                asyncio.timeout(_ASK_S),
                aiohttp.ClientSession() as http,
                http.get(f"{self.url}/metrics") as response,
            ):
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UserError(
                f"no pool server answers at {self.url} ({type(error).__name__}): start `python -m sandbox.server`"
            ) from error
        found = re.search(rf"^longshore_sandbox_{name} (\S+)$", text, re.MULTILINE)
        if found is None:
            raise UserError(
                f"{self.url} is no pool server: start one with `python -m sandbox.server`, and name its address"
            )
        return float(found[1])
