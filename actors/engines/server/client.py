"""Speaks HTTP to one local SGLang server, and believes nothing that it did not check.

Replies are streamed (:mod:`.replies`).  A connection that breaks, a reply that makes no sense and a server's own error
are :class:`ServerLost`; a request that the server says can never be served is :class:`RequestRefused`.  Deadlines are
the caller's.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
import orjson

from actors.engines.messages import PauseMode, PortTaken, Rendezvous, RequestRefused, ServerLost
from actors.engines.server.reply_stream import ReplyStream, SampledReply
from actors.engines.weights.tensor_buckets import TensorBucketSpec
from protocol.processes.task_groups import task_group
from protocol.weights import NO_VERSION

_STREAM_INTERVAL = 8
"""Tokens a chunk: few enough that little is lost with a server, enough that streaming costs nothing."""
_READ_BYTES = 1 << 20
"""Buffer of a connection; a chunk is a line, and may be half as long again as this."""
_BEHIND_S = 0.01
"""How long after a load the question is asked that the server is to answer after it."""
_SERVES = re.compile(rb"Weight version updated to (\d+)\.")
"""SGLang's word on a load that it has done."""

MEMORY_TAGS = ("weights", "kv_cache", "cuda_graph")
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

    def to_request(self) -> dict[str, object]:
        options: dict[str, object] = {
            "max_new_tokens": self.max_new_tokens,
            "temperature": 0.0 if self.greedy else self.temperature,
            "stop_token_ids": list(self.stop_token_ids),
            "stream_interval": _STREAM_INTERVAL,
        }
        if self.seed is not None:
            options["sampling_seed"] = self.seed
        return options


@dataclass(frozen=True, slots=True)
class ServerWeights:
    """What a server says that it holds."""

    version: int
    checksum: str
    """Of the weights in use, bit for bit, over all ranks."""


class SGLangClient:
    """One server's client.  An async context manager."""

    def __init__(self, port: int, api_key: str, *, pause: PauseMode = "in_place") -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._pause: PauseMode = pause
        self._session: aiohttp.ClientSession | None = None
        self._responses: set[aiohttp.ClientResponse] = set()
        """Under way."""

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
            read_bufsize=_READ_BYTES,
        )

    async def close(self) -> None:
        """What is under way ends as :class:`ServerLost`; a session that is closed leaves those who read a response
        waiting for ever."""
        for response in self._responses:
            response.close()
        if self._session is not None:
            await self._session.close()

    async def generate(
        self,
        rid: str,
        input_ids: list[int],
        options: SamplingOptions,
        key: str,
        stream: ReplyStream | None = None,
        *,
        adapter: str = "",
    ) -> SampledReply:
        """Sample one continuation, under the ``adapter`` of that name if there is one; ``key`` separates prefix caches,
        ``rid`` names the request for :meth:`abort`.  What comes is in ``stream`` at once."""
        message: dict[str, object] = {
            "rid": rid,
            "input_ids": input_ids,
            "sampling_params": options.to_request(),
            "return_logprob": True,
            "extra_key": key,
            "stream": True,
        }
        if adapter:
            message["lora_path"] = adapter
        stream = stream or ReplyStream(options.max_new_tokens, NO_VERSION)
        async with self._asked("POST", "/generate", message) as response:
            async for line in response.content:
                if line.startswith(b"data:") and (whole := stream.parse_chunk(line[5:])) is not None:
                    return whole
        raise ServerLost("/generate: the stream ended before the reply did")

    async def abort(self, rid: str) -> None:
        """End a request whose caller has gone; harmless if it has ended."""
        await self._post("/abort_request", {"rid": rid})

    async def pause(self) -> None:
        """Stop between two tokens; running requests go on behind them after :meth:`resume`."""
        await self._post("/pause_generation", {"mode": self._pause})

    async def resume(self) -> None:
        await self._post("/continue_generation", {})

    async def release_memory(self, drain_s: float) -> None:
        """End every request as lost, forget all KV, and give the memory away: in this order, because the server dies of
        a release while it works.  None is begun until :meth:`resume`.  Weights and KV are gone then, but on a server
        that saves no memory, as one on a CPU."""
        await self._post("/pause_generation", {"mode": "abort"})
        await self._post(f"/flush_cache?timeout={drain_s:g}", {})  # answers when the server is idle
        await self._post("/release_memory_occupation", {"tags": MEMORY_TAGS})

    async def resume_memory(self) -> None:
        """Take back what :meth:`release_memory` gave away, once: the server dies of a second time.  The weights are
        unknown until they are loaded."""
        await self._post("/resume_memory_occupation", {"tags": MEMORY_TAGS})

    async def update_weights(self, path: str, version: int) -> int:
        """Exchange the weights for those in ``path``, checked before; the version that the server says it then serves.
        After an error the weights are unknown."""
        said = await self._post(
            "/update_weights_from_disk",
            {"model_path": path, "weight_version": str(version), "abort_all_requests": False, "flush_cache": False},
        )
        found = _SERVES.search(said)
        return int(found[1]) if found else await self.read_version()

    async def update_weights_and_checksum(self, path: str, version: int) -> ServerWeights:
        """:meth:`update_weights`, and what the server holds, without a round trip in between.

        The server does one after the other; if the question came first, the checksum is that of the weights before.
        """
        async with task_group() as group:
            served = group.create_task(self.update_weights(path, version))
            await asyncio.sleep(_BEHIND_S)
            checksum = group.create_task(self.read_checksum())
        return ServerWeights(served.result(), checksum.result())

    @asynccontextmanager
    async def weight_update(self) -> AsyncGenerator[None]:
        """Weights can be sent in pieces meanwhile; after an error they are unknown."""
        await self._post("/begin_weight_update", {})
        try:
            yield
        except Exception:  # also what broke on our side, else the server takes no other update
            with suppress(ServerLost):
                await self._post("/end_weight_update", {})
            raise
        await self._post("/end_weight_update", {})

    async def update_weights_from_tensors(self, ranks: Sequence[str], version: int | None) -> None:
        """Take the pickled tensors, one text for each of the server's ranks; ``version`` with the last of a version."""
        message: dict[str, object] = {"serialized_named_tensors": list(ranks), "flush_cache": False}
        await self._post("/update_weights_from_tensor", message | _labelled(version))

    async def init_weights_update_group(self, place: Rendezvous) -> None:
        """Be the ranks from 1 on of a process group; it is made while the server stands still."""
        await self._post(
            "/init_weights_update_group",
            {
                "master_address": place.address,
                "master_port": place.port,
                "rank_offset": 1,
                "world_size": place.world,
                "group_name": place.name,
                "backend": place.backend,
            },
        )

    async def update_weights_from_broadcast(self, group: str, piece: TensorBucketSpec, version: int | None) -> None:
        """Take a piece that is broadcast in one; ``version`` with the last of a version."""
        message: dict[str, object] = {
            "names": piece.names,
            "dtypes": [piece.dtype] * len(piece.names),
            "shapes": piece.shapes,
            "group_name": group,
            "load_format": "flattened_bucket",
            "flush_cache": False,
        }
        await self._post("/update_weights_from_distributed", message | _labelled(version))

    async def load_adapter(self, name: str, path: str) -> None:
        """Load PEFT's folder, checked before, under a name that no adapter has.  Requests go on meanwhile."""
        await self._post("/load_lora_adapter", {"lora_name": name, "lora_path": path})

    async def unload_adapter(self, name: str) -> None:
        """Return when it is gone: once no request uses it any more."""
        await self._post("/unload_lora_adapter", {"lora_name": name})

    async def list_adapters(self) -> dict[str, str]:
        """Name → folder of those that are loaded."""
        body = await self._request("GET", "/v1/models", None)
        try:
            return {str(card["id"]): str(card["root"]) for card in orjson.loads(body)["data"] if card["parent"]}
        except (ValueError, TypeError, KeyError) as error:
            raise ServerLost(f"the server's list of adapters cannot be read: {body[:200]!r}") from error

    async def read_server_weights(self) -> ServerWeights:
        async with task_group() as both:
            asked = both.create_task(self.read_version()), both.create_task(self.read_checksum())
        return ServerWeights(asked[0].result(), asked[1].result())

    async def read_checksum(self) -> str:
        """See :class:`Held`."""
        body = await self._post("/weights_checker", {"action": "checksum"})
        return _field(body, "per_engine_checksum")

    async def read_version(self) -> int:
        """The version that the server says it serves."""
        text = _field(await self._request("GET", "/model_info", None), "weight_version")
        try:
            return int(text)
        except ValueError:
            raise ServerLost(f"the server's weight version is {text!r}") from None

    async def _post(self, path: str, message: dict[str, object]) -> bytes:
        return await self._request("POST", path, message)

    async def _request(self, method: str, path: str, message: dict[str, object] | None) -> bytes:
        async with self._asked(method, path, message) as response:
            return await response.read()

    @asynccontextmanager
    async def _asked(
        self, method: str, path: str, message: dict[str, object] | None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """A response that says 200; its connection may still break."""
        if self._session is None or self._session.closed:
            raise ServerLost(f"{path}: the client is closed")
        data = None if message is None else orjson.dumps(message)
        try:
            async with self._session.request(
                method, self._base + path, data=data, headers={"Content-Type": "application/json"}
            ) as response:
                if response.status != 200:
                    said = f"{path}: {response.status} {(await response.read())[:500].decode(errors='replace')}"
                    if response.status == 401:
                        raise PortTaken(said)
                    raise RequestRefused(said) if response.status == 400 and path == "/generate" else ServerLost(said)
                self._responses.add(response)
                try:
                    yield response
                finally:
                    self._responses.discard(response)
        except (aiohttp.ClientError, OSError) as error:
            raise ServerLost(f"{path}: {type(error).__name__}: {error}") from error


def _labelled(version: int | None) -> dict[str, object]:
    return {} if version is None else {"weight_version": str(version)}


def _field(body: bytes, name: str) -> str:
    try:
        return str(orjson.loads(body)[name])
    except (ValueError, TypeError, KeyError) as error:
        raise ServerLost(f"the server's reply has no {name}: {body[:200]!r}") from error
