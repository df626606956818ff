"""A bucket of SWE-SYNTH's bugs on the loopback device."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.support.network.aiohttp_servers import serve_on_loopback
from tests.support.tasks.bug_rows import bug_row


class FakeBucket:
    """A bucket with some bugs, which does not answer at first if it is told so."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.busy_once: set[str] = set()
        self.asked = Counter[str]()
        self.url = ""

    def add(self, number: int, row: dict[str, Any] | None = None) -> None:
        bug = dict(row or bug_row())
        del bug["task_id"]
        self.objects[f"task_{number:011d}.json"] = bug

    async def answer(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.asked[name] += 1
        if name in self.busy_once:
            self.busy_once.remove(name)
            return web.Response(status=503)
        found = self.objects.get(name)
        if found is None or isinstance(found, int):
            return web.Response(status=found or 404)
        return web.Response(text=found if isinstance(found, str) else json.dumps(found))

    @asynccontextmanager
    async def served(self) -> AsyncGenerator[FakeBucket]:
        app = web.Application()
        app.router.add_get("/bugs/{name}", self.answer)
        async with serve_on_loopback(app) as port:
            self.url = f"http://127.0.0.1:{port}/bugs"
            yield self
