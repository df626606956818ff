"""The requests of one engine: each waits at a gate that is open while the server serves, then for a place in it.

In one breath with passing the gate a request gets its KV key (:mod:`.prefixes`), so a key names weights that the
request was dispatched under, and the adapter, if that is what they are.  Replies are streamed: a request whose server
dies waits at the gate again, and the next server goes on behind the tokens that came, until the request's deadline.

Who opens and shuts the gate is :class:`actors.engines.engine.Engine`, and a server in trouble
(:meth:`actors.engines.weights.swap.Serving.condemn`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress

from actors.engines.messages import (
    EngineBusy,
    EngineState,
    EngineStatistics,
    EngineUnavailable,
    GenerateReply,
    GenerateRequest,
    OnPartialReply,
    PartialReply,
    RequestRefused,
    RequestTimedOut,
    ServerLost,
    TokensInFlight,
)
from actors.engines.routing.inflight_request import InflightRequest
from actors.engines.routing.prefix_cache import PrefixKeys, PrefixReuse
from actors.engines.server.client import SamplingOptions
from actors.engines.server.process import SGLangServer
from actors.engines.server.reply_stream import ReplyStream, SampledReply
from actors.engines.weights.swap import ActiveServer
from protocol.weights import WeightVersion

_RESEND_PAUSE_S = 0.1
_LOOK_S = 0.05


class RequestQueue:
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
        prefix_reuse: PrefixReuse,
        state: Callable[[], EngineState],
        sending: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """``sending`` is entered while a request is with the server."""
        self._sending = sending
        self._name, self._context_length, self._deterministic, self._state = name, context_length, deterministic, state
        self._max_queued = max_queued
        self._prefixes = PrefixKeys(prefix_reuse)
        self.dispatch_open = asyncio.Event()
        self.counters = EngineStatistics()
        self.vocabulary_size: int | None = None
        """Of the model, once it is known: before that nothing is taken."""
        self.last_token_at = 0.0
        """When the server that serves last sent a token, or began to serve; monotonic seconds."""
        self.request_ended = asyncio.Event()
        """Set when a request leaves its server; whoever waits for that clears it."""
        self._serving: ActiveServer | None = None
        self._closed = False
        self._under_way: set[InflightRequest] = set()
        self._places = asyncio.Semaphore(max_running)
        self._gone: asyncio.Queue[tuple[SGLangServer, str]] = asyncio.Queue(max_running * 2)

    def open(self, serving: ActiveServer) -> None:
        """Requests may go to this server."""
        if serving is not self._serving:
            self._prefixes.clear()
        self._serving, self.last_token_at = serving, time.monotonic()
        self.dispatch_open.set()

    def close(self) -> None:
        """Nothing is served any more; those who wait leave."""
        self._closed = True
        self.dispatch_open.set()

    def note_weight_change(self, version: WeightVersion) -> None:
        """The server stands still, and is about to go on with others, under the same requests."""
        for work in self._under_way:
            work.note_weight_change(version)

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        """See :meth:`actors.engines.engine.Engine.generate`."""
        self._check(request)
        counts = self.counters
        if counts.queued >= self._max_queued:
            counts.unavailable += 1
            raise EngineBusy(
                f"engine {self._name} has {counts.queued} requests waiting, its limit", request.resume_from
            )
        work = InflightRequest(request, self._hear, watch)
        self._under_way.add(work)
        try:
            async with asyncio.timeout(request.deadline_s + request.restart_s):
                return await self._answer(work)
        except TimeoutError:
            counts.unavailable += 1
            allowed = f"{request.deadline_s:g} s to sample, {request.restart_s:g} s for a restart"
            state = self._state()
            kind = RequestTimedOut if state is EngineState.SERVING else EngineUnavailable
            raise kind(
                f"engine {self._name} gave no reply in time ({allowed}); it is {state}", work.partial_reply
            ) from None
        finally:
            self._under_way.discard(work)
            self.request_ended.set()

    async def wait_until_idle(self, patience_s: float) -> bool:
        """Whether the server has been left by every request within that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self.counters.running:  # noqa: ASYNC110  # a state; who waits for the event clears it
                    await asyncio.sleep(_LOOK_S)
        return not self.counters.running

    @property
    def versions_in_use(self) -> set[WeightVersion]:
        """Under which requests have been dispatched that have not come back."""
        return {work.version for work in self._under_way if work.stream is not None}

    def partial_replies(self, known: Mapping[str, int]) -> dict[str, PartialReply]:
        """See :meth:`actors.engines.engine.Engine.received`."""
        return {
            name: work.partial_reply.skip_tokens(known[name])
            for work in self._under_way
            if (name := work.request.name) in known
        }

    def count_tokens(self, names: Container[str]) -> TokensInFlight:
        """Of all requests; the asker's are those of these names."""
        running = queued = of_asker = 0
        for work in self._under_way:
            tokens = work.request.token_budget
            running, queued = (running + tokens, queued) if work.stream is not None else (running, queued + tokens)
            of_asker += tokens * (work.request.name in names)
        return TokensInFlight(running=running, queued=queued, of_caller=of_asker)

    @property
    def sampled_tokens(self) -> int:
        """Sampled so far, those of requests under way included."""
        return self.counters.sampled_tokens + sum(work.token_count for work in self._under_way)

    async def abort_abandoned(self) -> None:
        """Until cancelled: tell the server of requests whose caller has gone."""
        while True:
            server, rid = await self._gone.get()
            try:
                async with asyncio.timeout(5):
                    await server.client.abort(rid)
            except (ServerLost, TimeoutError):
                continue

    def _check(self, request: GenerateRequest) -> None:
        if self.vocabulary_size is None:
            raise EngineUnavailable(f"engine {self._name} was not started")
        limit = self._context_length
        if not request.input_ids or request.max_new_tokens < 1:
            raise RequestRefused("a request needs at least one input id and one new token")
        if min(request.input_ids) < 0 or max(request.input_ids) >= self.vocabulary_size:
            raise RequestRefused(f"an input id lies outside the vocabulary of {self.vocabulary_size}")
        if len(request.input_ids) + request.max_new_tokens > limit:
            raise RequestRefused(
                f"{len(request.input_ids)} input ids and {request.max_new_tokens} new ones exceed the context, {limit}"
            )
        if not request.greedy and not request.temperature > 0:
            raise RequestRefused(f"temperature {request.temperature} is not above 0: ask for greedy instead")

    async def _answer(self, work: InflightRequest) -> GenerateReply:
        counts, request = self.counters, work.request
        counts.queued += 1
        waiting = True
        try:
            await self._wait_for_server(work)
            async with self._places:
                while True:
                    serving = await self._wait_for_server(work)
                    weights = serving.confirmed  # no await between the gate and this
                    key = self._prefixes.key_for_session(request.session, weights.manifest.version)
                    stream = work.begin_attempt(weights.manifest.version, key, weights.adapter)
                    counts.queued, counts.running, waiting = counts.queued - 1, counts.running + 1, False
                    try:
                        async with asyncio.timeout(request.deadline_s):
                            sampled = await self._send(serving.server, work, stream)
                    except ServerLost:
                        counts.resent += 1
                        counts.received_tokens += work.keep_partial_reply()
                        self.request_ended.set()
                    else:
                        return self._reply(sampled, work)
                    finally:
                        counts.queued, counts.running, waiting = counts.queued + 1, counts.running - 1, True
                    await asyncio.sleep(_RESEND_PAUSE_S)
        finally:
            counts.queued -= waiting

    async def _wait_for_server(self, work: InflightRequest) -> ActiveServer:
        patience_s = work.request.patience_s
        try:
            async with asyncio.timeout(patience_s):
                while not self._closed and not self.dispatch_open.is_set():
                    await self.dispatch_open.wait()
        except TimeoutError:
            self.counters.unavailable += 1
            raise EngineUnavailable(
                f"engine {self._name} is {self._state()} and the request may wait {patience_s} s only",
                work.partial_reply,
            ) from None
        if self._closed or self._serving is None:
            raise EngineUnavailable(f"engine {self._name} is stopped", work.partial_reply)
        return self._serving

    async def _send(self, server: SGLangServer, work: InflightRequest, stream: ReplyStream) -> SampledReply:
        with self._sending():
            return await self._sent(server, work, stream)

    async def _sent(self, server: SGLangServer, work: InflightRequest, stream: ReplyStream) -> SampledReply:
        self.counters.requests += 1
        rid, request = f"{self._name}-{self.counters.requests}.", work.request  # SGLang aborts all that begin so
        options = SamplingOptions(
            max_new_tokens=work.tokens_left,
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

    def _reply(self, sampled: SampledReply, work: InflightRequest) -> GenerateReply:
        counts, reply = self.counters, work.build_reply(sampled, self._name)
        counts.completed += 1
        counts.sampled_tokens += len(reply.token_ids)
        counts.cached_tokens += reply.cached_tokens
        counts.mixed_prefix += reply.mixed_prefix
        self._hear()
        return reply

    def _hear(self) -> None:
        self.last_token_at = time.monotonic()
