"""Speaks HTTP to one local SGLang server, and believes nothing that it did not check.

Every reply is checked before it is used: as many log-probabilities as ids, version spans that cover each token once.
A connection that breaks, a reply that makes no sense and a server's own error are :class:`ServerLost`; a request that
the server says can never be served is :class:`RequestRefused`.  Deadlines are the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from actors.engines.messages import Finish, RequestRefused, ServerLost

MEMORY = ("weights", "kv_cache", "cuda_graph")
"""What a server can give away of a device's memory, by SGLang's names; all that is not small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """What may be asked of the sampler."""

    max_new_tokens: int
    temperature: float
    stop_token_ids: tuple[int, ...]
    greedy: bool
    seed: int | None = None
    """Only for servers that were started for deterministic inference."""

    def wire(self) -> dict[str, object]:
        options: dict[str, object] = {
            "max_new_tokens": self.max_new_tokens,
            "temperature": 0.0 if self.greedy else self.temperature,
            "stop_token_ids": list(self.stop_token_ids),
        }
        if self.seed is not None:
            options["sampling_seed"] = self.seed
        return options


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Tokens ``[start, end)`` of a reply were sampled by ``version``."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sampled:
    token_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    finish: Finish
    cached_tokens: int


def expand_spans(spans: list[VersionSpan], count: int) -> list[int]:
    """The version of each of ``count`` tokens.  Raises :class:`ServerLost` unless the spans cover each exactly once."""
    versions: list[int] = []
    for span in spans:
        if span.start != len(versions) or span.end <= span.start:
            raise ServerLost(f"version spans have a hole, overlap or are empty at token {len(versions)}: {spans}")
        versions += [span.version] * (span.end - span.start)
    if len(versions) != count:
        raise ServerLost(f"version spans cover {len(versions)} of {count} tokens: {spans}")
    return versions


def parse_generated(body: bytes) -> Sampled:
    """A ``/generate`` reply.  Raises :class:`ServerLost` if it contradicts itself or was aborted by the server."""
    try:
        reply: dict[str, Any] = orjson.loads(body)
        meta = reply["meta_info"]
        finish: Finish = meta["finish_reason"]["type"]
        token_ids = [int(token) for token in reply["output_ids"]]
        scored = [(float(entry[0]), int(entry[1])) for entry in meta["output_token_logprobs"]]
        spans = [
            VersionSpan(int(span["version"]), int(span["start"]), int(span["end"]))
            for span in meta.get("weight_versions", ())
        ]
        cached_tokens = int(meta["cached_tokens"])
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ServerLost(f"the server's reply cannot be read ({error!r}): {body[:200]!r}") from error
    if finish not in ("stop", "length"):
        raise ServerLost(f"the server ended the request itself: {meta['finish_reason']}")
    if not token_ids or [token for _, token in scored] != token_ids:
        raise ServerLost(f"{len(token_ids)} ids do not match {len(scored)} log-probabilities")
    return Sampled(
        token_ids,
        [logprob for logprob, _ in scored],
        expand_spans(spans, len(token_ids)),
        finish,
        cached_tokens,
    )


class EngineClient:
    """One server's client.  An async context manager."""

    def __init__(self, port: int, api_key: str) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Make the session.  Connections are never kept: the server drops idle ones in the middle of a request."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None),
            headers=self._headers,
            trust_env=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def generate(self, rid: str, input_ids: list[int], options: SamplingOptions, key: str) -> Sampled:
        """Sample one continuation; ``key`` separates prefix caches, ``rid`` names the request for :meth:`abort`."""
        body = await self._post(
            "/generate",
            {
                "rid": rid,
                "input_ids": input_ids,
                "sampling_params": options.wire(),
                "return_logprob": True,
                "extra_key": key,
            },
        )
        return parse_generated(body)

    async def abort(self, rid: str) -> None:
        """End a request whose caller has gone; harmless if it has ended."""
        await self._post("/abort_request", {"rid": rid})

    async def pause(self) -> None:
        """Stop between two tokens; running requests keep their KV."""
        await self._post("/pause_generation", {"mode": "in_place"})

    async def resume(self) -> None:
        await self._post("/continue_generation", {})

    async def release_memory(self, drain_s: float) -> None:
        """End every request as lost, forget all KV, and give the memory away: in this order, because the server dies of
        a release while it works.  None is begun until :meth:`resume`.  Weights and KV are gone then, but on a server
        that saves no memory, as one on a CPU."""
        await self._post("/pause_generation", {"mode": "abort"})
        await self._post(f"/flush_cache?timeout={drain_s:g}", {})  # answers when the server is idle
        await self._post("/release_memory_occupation", {"tags": MEMORY})

    async def resume_memory(self) -> None:
        """Take back what :meth:`release_memory` gave away, once: the server dies of a second time.  The weights are
        unknown until they are loaded."""
        await self._post("/resume_memory_occupation", {"tags": MEMORY})

    async def update_weights(self, path: str, version: int) -> None:
        """Exchange the weights for those in ``path``, checked before.  After an error the weights are unknown."""
        await self._post(
            "/update_weights_from_disk",
            {"model_path": path, "weight_version": str(version), "abort_all_requests": False, "flush_cache": False},
        )

    async def checksum(self) -> str:
        """Of the weights in use, bit for bit, over all ranks."""
        body = await self._post("/weights_checker", {"action": "checksum"})
        return _field(body, "per_engine_checksum")

    async def version(self) -> int:
        """The version that the server says it serves."""
        text = _field(await self._request("GET", "/model_info", None), "weight_version")
        try:
            return int(text)
        except ValueError:
            raise ServerLost(f"the server's weight version is {text!r}") from None

    async def _post(self, path: str, message: dict[str, object]) -> bytes:
        return await self._request("POST", path, message)

    async def _request(self, method: str, path: str, message: dict[str, object] | None) -> bytes:
        if self._session is None or self._session.closed:
            raise ServerLost(f"{path}: the client is closed")
        data = None if message is None else orjson.dumps(message)
        try:
            async with self._session.request(
                method, self._base + path, data=data, headers={"Content-Type": "application/json"}
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise ServerLost(f"{path}: {type(error).__name__}: {error}") from error
        if response.status == 200:
            return body
        said = f"{path}: {response.status} {body[:500].decode(errors='replace')}"
        raise RequestRefused(said) if response.status == 400 and path == "/generate" else ServerLost(said)


def _field(body: bytes, name: str) -> str:
    try:
        return str(orjson.loads(body)[name])
    except (ValueError, TypeError, KeyError) as error:
        raise ServerLost(f"the server's reply has no {name}: {body[:200]!r}") from error
