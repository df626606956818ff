"""HTTP client of one local SGLang server, which checks all of the server's replies.

Replies are streamed (:mod:`.reply_stream`).  A broken connection, a reply that contradicts itself and a server error
raise :class:`ServerLost`; a request that can never be served raises :class:`RequestRefused`.  Deadlines are the
caller's.
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

from actors.engines.messages import (
    PauseMode,
    Rendezvous,
    RequestRefused,
    ServerLost,
    ServerPortTaken,
    TensorBucketSpec,
    WeightLoadError,
)
from actors.engines.server.reply_stream import ReplyStream, SampledReply
from protocol.errors import InfraError
from protocol.processes.task_groups import task_group
from protocol.weights import NO_VERSION, WeightVersion, format_version

_STREAM_INTERVAL = 8
"""Tokens of a chunk: few enough that little is lost with a server, enough that streaming costs nothing."""
_READ_BYTES = 1 << 20
"""Read buffer of a connection.  A chunk is one line and may be half as long again."""
_CHECKSUM_DELAY_S = 0.01
"""Seconds after a load request at which the checksum is requested, so that the server handles it second."""
_SERVED_VERSION = re.compile(rb"Weight version updated to (\d+)\.")
"""SGLang's message about a completed load."""

MEMORY_TAGS = ("weights", "kv_cache", "cuda_graph")
"""SGLang's names for the device memory that a server can release; what remains is small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """The sampling parameters that longshore uses."""

    max_new_tokens: int
    temperature: float
    stop_token_ids: tuple[int, ...]
    greedy: bool
    seed: int | None = None
    """Only for servers that were started for deterministic inference."""

    def to_request(self) -> dict[str, object]:
        """Return SGLang's ``sampling_params``."""
        options: dict[str, object] = {
            "max_new_tokens": self.max_new_tokens,
            "temperature": 0.0 if self.greedy else self.temperature,
            "stop_token_ids": list(self.stop_token_ids),
            "stream_interval": _STREAM_INTERVAL,
        }
        if self.seed is not None:
            options["sampling_seed"] = self.seed
        return options


class SGLangClient:
    """The client of one server.  An async context manager."""

    def __init__(self, port: int, api_key: str, *, pause: PauseMode = "in_place") -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._pause: PauseMode = pause
        self._session: aiohttp.ClientSession | None = None
        self._responses: set[aiohttp.ClientResponse] = set()
        """Responses that are being read."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the HTTP session.  Connections are not kept alive: the server drops idle ones during a request."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None),
            headers=self._headers,
            trust_env=False,
            read_bufsize=_READ_BYTES,
        )

    async def close(self) -> None:
        """Close the session.  Calls in flight raise :class:`ServerLost`: aiohttp alone would let readers of an open
        response wait for ever."""
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
        """Sample one continuation, under ``adapter`` if it is not empty.  ``key`` separates prefix caches, ``rid``
        names the request for :meth:`abort`.  Tokens are in ``stream`` as soon as they arrive."""
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
        async with self._request_stream("POST", "/generate", message) as response:
            async for line in response.content:
                if line.startswith(b"data:") and (reply := stream.parse_chunk(line[5:])) is not None:
                    return reply
        raise ServerLost("/generate: the stream ended before the reply did")

    async def abort(self, rid: str) -> None:
        """End a request whose caller is gone; harmless if it has ended."""
        await self._post("/abort_request", {"rid": rid})

    async def pause(self) -> None:
        """Stop between two tokens; running requests continue after :meth:`resume`."""
        await self._post("/pause_generation", {"mode": self._pause})

    async def resume(self) -> None:
        """Continue after :meth:`pause`."""
        await self._post("/continue_generation", {})

    async def release_memory(self, drain_s: float) -> None:
        """Abort every request, drop the KV cache, then release the memory; the server dies of a release while it works.

        No request begins until :meth:`resume`.  Weights and KV cache are gone then, except on a server that saves no
        memory, as on a CPU."""
        await self._post("/pause_generation", {"mode": "abort"})
        await self._post(f"/flush_cache?timeout={drain_s:g}", {})  # answers when the server is idle
        await self._post("/release_memory_occupation", {"tags": MEMORY_TAGS})

    async def resume_memory(self) -> None:
        """Take back the memory after :meth:`release_memory`, once: the server dies of a second call.  The weights are
        unknown until they are loaded."""
        await self._post("/resume_memory_occupation", {"tags": MEMORY_TAGS})

    async def update_weights(self, path: str, version: int) -> int:
        """Load the weights in ``path``, which were checked; return the version that the server says it then serves.
        After an error the weights are unknown."""
        body = await self._post(
            "/update_weights_from_disk",
            {"model_path": path, "weight_version": str(version), "abort_all_requests": False, "flush_cache": False},
        )
        found = _SERVED_VERSION.search(body)
        return int(found[1]) if found else await self.read_version()

    async def update_weights_and_checksum(self, path: str, version: int) -> str:
        """:meth:`update_weights`, and the checksum of what the server holds, without a round trip in between.

        The server does one after the other; if it handles the checksum first, that is of the weights before.  Raises
        :class:`WeightLoadError` if the server then says that it serves another version.
        """
        async with task_group() as group:
            served = group.create_task(self.update_weights(path, version))
            await asyncio.sleep(_CHECKSUM_DELAY_S)
            checksum = group.create_task(self.read_checksum())
        _require_version(served.result(), version)
        return checksum.result()

    @asynccontextmanager
    async def weight_update(self) -> AsyncGenerator[None]:
        """Accept weights in pieces during the block; after an error they are unknown."""
        await self._post("/begin_weight_update", {})
        try:
            yield
        except (InfraError, OSError, RuntimeError):  # else the server would accept no other update
            with suppress(ServerLost):
                await self._post("/end_weight_update", {})
            raise
        await self._post("/end_weight_update", {})

    async def update_weights_from_tensors(self, ranks: Sequence[str], version: int | None) -> None:
        """Load pickled tensors, one text for each of the server's ranks; ``version`` comes with a version's last."""
        message: dict[str, object] = {"serialized_named_tensors": list(ranks), "flush_cache": False}
        await self._post("/update_weights_from_tensor", message | _version_label(version))

    async def init_weights_update_group(self, rendezvous: Rendezvous) -> None:
        """Join a process group as ranks 1 and up; the server must be paused."""
        await self._post(
            "/init_weights_update_group",
            {
                "master_address": rendezvous.address,
                "master_port": rendezvous.port,
                "rank_offset": 1,
                "world_size": rendezvous.world,
                "group_name": rendezvous.name,
                "backend": rendezvous.backend,
            },
        )

    async def update_weights_from_broadcast(self, group: str, piece: TensorBucketSpec, version: int | None) -> None:
        """Receive a bucket that is broadcast in a group; ``version`` comes with a version's last."""
        message: dict[str, object] = {
            "names": piece.names,
            "dtypes": [piece.dtype] * len(piece.names),
            "shapes": piece.shapes,
            "group_name": group,
            "load_format": "flattened_bucket",
            "flush_cache": False,
        }
        await self._post("/update_weights_from_distributed", message | _version_label(version))

    async def load_adapter(self, name: str, path: str) -> None:
        """Load a PEFT folder, which was checked, under an unused name.  Requests continue meanwhile."""
        await self._post("/load_lora_adapter", {"lora_name": name, "lora_path": path})

    async def unload_adapter(self, name: str) -> None:
        """Unload an adapter; returns once no request uses it any more."""
        await self._post("/unload_lora_adapter", {"lora_name": name})

    async def list_adapters(self) -> dict[str, str]:
        """Return name → folder of the loaded adapters."""
        body = await self.request("GET", "/v1/models", None)
        try:
            return {str(card["id"]): str(card["root"]) for card in orjson.loads(body)["data"] if card["parent"]}
        except (ValueError, TypeError, KeyError) as error:
            raise ServerLost(f"the server's list of adapters cannot be read: {body[:200]!r}") from error

    async def read_checksum_of(self, version: int) -> str:
        """:meth:`read_checksum`.  Raises :class:`WeightLoadError` if the server says that it serves another version."""
        async with task_group() as both:
            served, checksum = both.create_task(self.read_version()), both.create_task(self.read_checksum())
        _require_version(served.result(), version)
        return checksum.result()

    async def read_checksum(self) -> str:
        """Return the server's checksum of the weights in use, bit for bit and over all ranks."""
        body = await self._post("/weights_checker", {"action": "checksum"})
        return _field(body, "per_engine_checksum")

    async def read_version(self) -> int:
        """Return the version that the server says it serves."""
        text = _field(await self.request("GET", "/model_info", None), "weight_version")
        try:
            return int(text)
        except ValueError:
            raise ServerLost(f"the server's weight version is {text!r}") from None

    async def _post(self, path: str, message: dict[str, object]) -> bytes:
        return await self.request("POST", path, message)

    async def request(self, method: str, path: str, message: dict[str, object] | None) -> bytes:
        """Send one request with ``message`` as JSON and return the body of the answer.  Raises ServerLost."""
        async with self._request_stream(method, path, message) as response:
            return await response.read()

    @asynccontextmanager
    async def _request_stream(
        self, method: str, path: str, message: dict[str, object] | None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """A response with status 200, whose connection may still break."""
        if self._session is None or self._session.closed:
            raise ServerLost(f"{path}: the client is closed")
        data = None if message is None else orjson.dumps(message)
        try:
            async with self._session.request(
                method, self._base + path, data=data, headers={"Content-Type": "application/json"}
            ) as response:
                if response.status != 200:
                    why = f"{path}: {response.status} {(await response.read())[:500].decode(errors='replace')}"
                    if response.status == 401:
                        raise ServerPortTaken(why)
                    raise RequestRefused(why) if response.status == 400 and path == "/generate" else ServerLost(why)
                self._responses.add(response)
                try:
                    yield response
                finally:
                    self._responses.discard(response)
        except (aiohttp.ClientError, OSError) as error:
            raise ServerLost(f"{path}: {type(error).__name__}: {error}") from error


def _require_version(served: int, version: int) -> None:
    if served != version:
        raise WeightLoadError(f"the server reports that it serves version {format_version(WeightVersion(served))}")


def _version_label(version: int | None) -> dict[str, object]:
    return {} if version is None else {"weight_version": str(version)}


def _field(body: bytes, name: str) -> str:
    try:
        return str(orjson.loads(body)[name])
    except (ValueError, TypeError, KeyError) as error:
        raise ServerLost(f"the server's reply has no {name}: {body[:200]!r}") from error
