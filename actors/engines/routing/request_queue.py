"""The requests of one engine: each waits until dispatch is open, then for room in the server.

A request gets its prefix-cache key (:mod:`.prefix_cache`) and adapter at the moment of dispatch, without an await in
between, so they name the weights that it is dispatched under.  Replies are streamed: a request whose server dies waits
again, and the next server continues behind the tokens received, until the request's deadline.

Dispatch is opened and closed by the parts of the engine (:mod:`actors.engines.server_slot`), and closed by a server
that has failed (:meth:`actors.engines.server.active_server.ActiveServer.mark_failed`).
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
from actors.engines.routing.prefix_cache import PrefixKeys
from actors.engines.server.active_server import ActiveServer
from actors.engines.server.client import SamplingOptions
from actors.engines.server.process import SGLangServer
from actors.engines.server.reply_stream import ReplyStream, SampledReply
from actors.engines.settings import PrefixReuse
from protocol.weights import WeightVersion

_RESEND_PAUSE_S = 0.1
_POLL_S = 0.05


class RequestQueue:
    """Holds the requests of one engine until the server has room for them.  A request beyond ``max_queued`` waiting
    ones is refused at once.  ``state`` returns the engine's state, for messages."""

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
        """``sending`` is entered while the server works on a request."""
        self._sending = sending
        self._name, self._context_length, self._deterministic, self._state = name, context_length, deterministic, state
        self._max_queued = max_queued
        self.prefixes = PrefixKeys(prefix_reuse)
        self.dispatch_open = asyncio.Event()
        self.counters = EngineStatistics()
        self.vocabulary_size: int | None = None
        """The model's vocabulary; no request is accepted before it is known."""
        self.last_token_at = 0.0
        """Monotonic time of the current server's last token, or of its start."""
        self.request_ended = asyncio.Event()
        """Set when a request leaves its server; whoever waits for it clears it."""
        self._serving: ActiveServer | None = None
        self._closed = False
        self._inflight: set[InflightRequest] = set()
        self._room = asyncio.Semaphore(max_running)
        self._abandoned: asyncio.Queue[tuple[SGLangServer, str]] = asyncio.Queue(max_running * 2)

    def open(self, serving: ActiveServer) -> None:
        """Dispatch requests to this server."""
        if serving is not self._serving:
            self.prefixes.clear()
        self._serving, self.last_token_at = serving, time.monotonic()
        self.dispatch_open.set()

    def close(self) -> None:
        """Serve nothing any more; waiting requests fail."""
        self._closed = True
        self.dispatch_open.set()

    def note_weight_change(self, version: WeightVersion) -> None:
        """The paused server is about to continue its requests on other weights."""
        for work in self._inflight:
            work.note_weight_change(version)

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        """See :meth:`actors.engines.interface.Engine.generate`."""
        self._check(request)
        counts = self.counters
        if counts.queued >= self._max_queued:
            counts.unavailable += 1
            raise EngineBusy(
                f"engine {self._name} has {counts.queued} requests waiting, its limit", request.resume_from
            )
        work = InflightRequest(request, self.note_activity, watch)
        self._inflight.add(work)
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
            self._inflight.discard(work)
            self.request_ended.set()

    async def wait_until_idle(self, patience_s: float) -> bool:
        """Return whether every request left the server within that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self.counters.running:  # noqa: ASYNC110  # a state; whoever waits for the event clears it
                    await asyncio.sleep(_POLL_S)
        return not self.counters.running

    @property
    def versions_in_use(self) -> set[WeightVersion]:
        """Versions under which requests in flight were dispatched."""
        return {work.version for work in self._inflight if work.stream is not None}

    def partial_replies(self, known: Mapping[str, int]) -> dict[str, PartialReply]:
        """See :meth:`actors.engines.interface.Engine.partial_replies`."""
        return {
            name: work.partial_reply.skip_tokens(known[name])
            for work in self._inflight
            if (name := work.request.name) in known
        }

    def count_tokens(self, names: Container[str]) -> TokensInFlight:
        """Count the tokens of all requests; the caller's are those of these names."""
        running = queued = of_caller = 0
        for work in self._inflight:
            tokens = work.request.token_budget
            running, queued = (running + tokens, queued) if work.stream is not None else (running, queued + tokens)
            of_caller += tokens * (work.request.name in names)
        return TokensInFlight(running=running, queued=queued, of_caller=of_caller)

    @property
    def sampled_tokens(self) -> int:
        """Tokens sampled so far, requests in flight included."""
        return self.counters.sampled_tokens + sum(work.token_count for work in self._inflight)

    async def abort_abandoned(self) -> None:
        """Until cancelled, abort requests on the server whose caller is gone."""
        while True:
            server, rid = await self._abandoned.get()
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
            raise RequestRefused(f"temperature {request.temperature} is not above 0: request greedy sampling instead")

    async def _answer(self, work: InflightRequest) -> GenerateReply:
        counts, request = self.counters, work.request
        counts.queued += 1
        waiting = True
        try:
            await self._wait_for_server(work)
            async with self._room:
                while True:
                    serving = await self._wait_for_server(work)
                    weights = serving.confirmed  # no await between the check of dispatch and this
                    key = self.prefixes.key_for_session(request.session, weights.manifest.version)
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
            return await self._sample(server, work, stream)

    async def _sample(self, server: SGLangServer, work: InflightRequest, stream: ReplyStream) -> SampledReply:
        self.counters.requests += 1
        rid, request = (
            f"{self._name}-{self.counters.requests}.",
            work.request,
        )  # SGLang aborts every id with this prefix
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
            if not self._abandoned.full():  # else the server notices by itself, seconds later
                self._abandoned.put_nowait((server, rid))
            raise

    def _reply(self, sampled: SampledReply, work: InflightRequest) -> GenerateReply:
        counts, reply = self.counters, work.build_reply(sampled, self._name)
        counts.completed += 1
        counts.sampled_tokens += len(reply.token_ids)
        counts.cached_tokens += reply.cached_tokens
        counts.mixed_prefix += reply.mixed_prefix
        self.note_activity()
        return reply

    def note_activity(self) -> None:
        """Note that the server has sent a token."""
        self.last_token_at = time.monotonic()
