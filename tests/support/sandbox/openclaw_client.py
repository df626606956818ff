"""The requests of OpenClaw's public terminal client: bodies without request ids, a plain POST that is tried again on
any failure, and the error text by which it knows that a lease is already gone."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import httpx


class OpenClawClient:
    def __init__(self, url: str, pause_s: float = 0.01) -> None:
        self.url, self.pause_s, self.requests = url, pause_s, 0
        self.http = httpx.AsyncClient(timeout=None)  # noqa: S113  as theirs

    async def post(self, path: str, body: dict[str, Any], tries: int) -> dict[str, Any]:
        for tries_left in reversed(range(tries)):
            self.requests += 1
            try:
                reply = await self.http.post(self.url + path, json=body)
                reply.raise_for_status()
                out = reply.json()
            except Exception:
                if not tries_left:
                    raise
                await asyncio.sleep(self.pause_s)
            else:
                if not out.get("ok", False):
                    raise RuntimeError(f"{path} failed: {out}")
                return out
        raise AssertionError("unreachable")

    async def allocate(self, task_key: str, request_id: str | None = None) -> dict[str, Any]:
        return await self.post("/allocate", {"task_key": task_key, "request_id": request_id}, 100)

    async def heartbeat(self, lease_id: str) -> None:
        await self.post("/heartbeat", {"lease_id": lease_id}, 10)

    async def reset(self, lease_id: str, task_meta: dict[str, Any]) -> dict[str, Any]:
        run_ctx = {"uid": "u", "group_index": 0, "sample_index": 1, "log_dir": "build_outputs"}
        timeouts = {"ensure_image": 300.0, "reset_session": 300.0, "close_session": 60.0, "eval": 600.0}
        body = {"lease_id": lease_id, "task_meta": task_meta, "run_ctx": run_ctx, "task_timeouts": timeouts}
        return await self.post("/reset", body, 10)

    async def exec_tool(self, lease_id: str, name: str, arguments: dict[str, Any]) -> str:
        body = {"lease_id": lease_id, "tool_call": {"name": name, "arguments": arguments}}
        return str((await self.post("/exec_tool", body, 3)).get("observation", ""))

    async def evaluate(self, lease_id: str) -> float:
        return float((await self.post("/evaluate", {"lease_id": lease_id}, 1)).get("score", 0.0))

    async def close(self, lease_id: str) -> None:
        await self.post("/close", {"lease_id": lease_id}, 3)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()
