"""The requests of one engine: each waits at a gate that is open while the server serves, then for a place in it.

In one breath with passing the gate a request gets its KV key (:mod:`.prefixes`), so a key names weights that the
request was dispatched under, and the adapter, if that is what they are.  Replies are streamed: a request whose server
dies waits at the gate again, and the next server goes on behind the tokens that came, until the request's deadline.

Who opens and shuts the gate is :class:`actors.engines.engine.Engine`, and a server in trouble
(:meth:`actors.engines.exchange.Serving.condemn`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress

from actors.engines.client import SamplingOptions
from actors.engines.exchange import Serving
from actors.engines.messages import (
    EngineBusy,
    EngineState,
    EngineStatistics,
    EngineUnavailable,
    GenerateReply,
    GenerateRequest,
    OutOfTime,
    Received,
    RequestRefused,
    ServerLost,
    TokensUnderWay,
    Watch,
)
from actors.engines.prefixes import KvReuse, Prefixes
from actors.engines.replies import ReplyStream, Sampled
from actors.engines.server import Server
from actors.engines.underway import UnderWay
from protocol.weights import Version

_RESEND_PAUSE_S = 0.1
_LOOK_S = 0.05


class Dispatch:
    """See the module.  Beside ``max_queued`` requests that wait one more is refused at once.  ``state`` says what the
    engine is at, for messages."""

    def __init__(
        self,
        name: str,
        *,
        max_running: int,
        max_queued: int,
        context_length: int,
        deterministic: bool,
        kv: KvReuse,
        state: Callable[[], EngineState],
        sending: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """``sending`` is entered while a request is with the server."""
        self._sending = sending
        self._name, self._context_length, self._deterministic, self._state = name, context_length, deterministic, state
        self._max_queued = max_queued
        self._prefixes = Prefixes(kv)
        self.gate = asyncio.Event()
        self.counts = EngineStatistics()
        self.vocabulary: int | None = None
        """Of the model, once it is known: before that nothing is taken."""
        self.heard_at = 0.0
        """When the server that serves last sent a token, or began to serve; monotonic seconds."""
        self.left = asyncio.Event()
        """Set when a request leaves its server; whoever waits for that clears it."""
        self._serving: Serving | None = None
        self._closed = False
        self._under_way: set[UnderWay] = set()
        self._places = asyncio.Semaphore(max_running)
        self._gone: asyncio.Queue[tuple[Server, str]] = asyncio.Queue(max_running * 2)

    def open(self, serving: Serving) -> None:
        """Requests may go to this server."""
        if serving is not self._serving:
            self._prefixes.forget()
        self._serving, self.heard_at = serving, time.monotonic()
        self.gate.set()

    def close(self) -> None:
        """Nothing is served any more; those who wait leave."""
        self._closed = True
        self.gate.set()

    def weights_change(self, version: Version) -> None:
        """The server stands still, and is about to go on with others, under the same requests."""
        for work in self._under_way:
            work.weights_change(version)

    async def generate(self, request: GenerateRequest, watch: Watch | None = None) -> GenerateReply:
        """See :meth:`actors.engines.engine.Engine.generate`."""
        self._check(request)
        counts = self.counts
        if counts.queued >= self._max_queued:
            counts.unavailable += 1
            raise EngineBusy(f"engine {self._name} has {counts.queued} requests waiting, its limit", request.received)
        work = UnderWay(request, self._hear, watch)
        self._under_way.add(work)
        try:
            async with asyncio.timeout(request.deadline_s + request.restart_s):
                return await self._answer(work)
        except TimeoutError:
            counts.unavailable += 1
            allowed = f"{request.deadline_s:g} s to sample, {request.restart_s:g} s for a restart"
            state = self._state()
            kind = OutOfTime if state is EngineState.SERVING else EngineUnavailable
            raise kind(f"engine {self._name} gave no reply in time ({allowed}); it is {state}", work.received) from None
        finally:
            self._under_way.discard(work)
            self.left.set()

    async def all_left(self, patience_s: float) -> bool:
        """Whether the server has been left by every request within that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self.counts.running:  # noqa: ASYNC110  # a state; who waits for the event clears it
                    await asyncio.sleep(_LOOK_S)
        return not self.counts.running

    @property
    def in_use(self) -> set[Version]:
        """Under which requests have been dispatched that have not come back."""
        return {work.version for work in self._under_way if work.stream is not None}

    def received(self, known: Mapping[str, int]) -> dict[str, Received]:
        """See :meth:`actors.engines.engine.Engine.received`."""
        return {
            name: work.received.behind(known[name]) for work in self._under_way if (name := work.request.name) in known
        }

    def tokens_under_way(self, names: Container[str]) -> TokensUnderWay:
        """Of all requests; the asker's are those of these names."""
        running = queued = of_asker = 0
        for work in self._under_way:
            tokens = work.request.tokens
            running, queued = (running + tokens, queued) if work.stream is not None else (running, queued + tokens)
            of_asker += tokens * (work.request.name in names)
        return TokensUnderWay(running=running, queued=queued, of_asker=of_asker)

    @property
    def tokens(self) -> int:
        """Sampled so far, those of requests under way included."""
        return self.counts.sampled_tokens + sum(work.came for work in self._under_way)

    async def abort_gone(self) -> None:
        """Until cancelled: tell the server of requests whose caller has gone."""
        while True:
            server, rid = await self._gone.get()
            try:
                async with asyncio.timeout(5):
                    await server.client.abort(rid)
            except (ServerLost, TimeoutError):
                continue

    def _check(self, request: GenerateRequest) -> None:
        if self.vocabulary is None:
            raise EngineUnavailable(f"engine {self._name} was not started")
        limit = self._context_length
        if not request.input_ids or request.max_new_tokens < 1:
            raise RequestRefused("a request needs at least one input id and one new token")
        if min(request.input_ids) < 0 or max(request.input_ids) >= self.vocabulary:
            raise RequestRefused(f"an input id lies outside the vocabulary of {self.vocabulary}")
        if len(request.input_ids) + request.max_new_tokens > limit:
            raise RequestRefused(
                f"{len(request.input_ids)} input ids and {request.max_new_tokens} new ones exceed the context, {limit}"
            )
        if not request.greedy and not request.temperature > 0:
            raise RequestRefused(f"temperature {request.temperature} is not above 0: ask for greedy instead")

    async def _answer(self, work: UnderWay) -> GenerateReply:
        counts, request = self.counts, work.request
        counts.queued += 1
        waiting = True
        try:
            await self._wait_for_server(work)
            async with self._places:
                while True:
                    serving = await self._wait_for_server(work)
                    weights = serving.confirmed  # no await between the gate and this
                    key = self._prefixes.key(request.session, weights.manifest.version)
                    stream = work.ask(weights.manifest.version, key, weights.adapter)
                    counts.queued, counts.running, waiting = counts.queued - 1, counts.running + 1, False
                    try:
                        async with asyncio.timeout(request.deadline_s):
                            sampled = await self._send(serving.server, work, stream)
                    except ServerLost:
                        counts.resent += 1
                        counts.received_tokens += work.cut()
                        self.left.set()
                    else:
                        return self._reply(sampled, work)
                    finally:
                        counts.queued, counts.running, waiting = counts.queued + 1, counts.running - 1, True
                    await asyncio.sleep(_RESEND_PAUSE_S)
        finally:
            counts.queued -= waiting

    async def _wait_for_server(self, work: UnderWay) -> Serving:
        patience_s = work.request.patience_s
        try:
            async with asyncio.timeout(patience_s):
                while not self._closed and not self.gate.is_set():
                    await self.gate.wait()
        except TimeoutError:
            self.counts.unavailable += 1
            raise EngineUnavailable(
                f"engine {self._name} is {self._state()} and the request may wait {patience_s} s only", work.received
            ) from None
        if self._closed or self._serving is None:
            raise EngineUnavailable(f"engine {self._name} is stopped", work.received)
        return self._serving

    async def _send(self, server: Server, work: UnderWay, stream: ReplyStream) -> Sampled:
        with self._sending():
            return await self._sent(server, work, stream)

    async def _sent(self, server: Server, work: UnderWay, stream: ReplyStream) -> Sampled:
        self.counts.requests += 1
        rid, request = f"{self._name}-{self.counts.requests}.", work.request  # SGLang aborts all that begin so
        options = SamplingOptions(
            max_new_tokens=work.left,
            temperature=request.temperature,
            stop_token_ids=request.stop_token_ids,
            greedy=request.greedy,
            seed=request.seed if self._deterministic else None,
        )
        try:
            key = work.key.text
            return await server.client.generate(rid, work.input_ids, options, key, stream, adapter=work.adapter)
        except asyncio.CancelledError:
            if not self._gone.full():  # else the server notices by itself, seconds later
                self._gone.put_nowait((server, rid))
            raise

    def _reply(self, sampled: Sampled, work: UnderWay) -> GenerateReply:
        counts, reply = self.counts, work.whole(sampled, self._name)
        counts.completed += 1
        counts.sampled_tokens += len(reply.token_ids)
        counts.cached_tokens += reply.cached_tokens
        counts.mixed_prefix += reply.mixed_prefix
        self._hear()
        return reply

    def _hear(self) -> None:
        self.heard_at = time.monotonic()
