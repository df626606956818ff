"""A request in flight in an engine, with the tokens received from all servers that worked on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from actors.engines.messages import GenerateReply, GenerateRequest, OnPartialReply, PartialReply
from actors.engines.routing.prefix_cache import NO_PREFIX, PrefixKey
from actors.engines.server.reply_stream import ReplyStream, SampledReply
from protocol.weights import NO_VERSION, WeightVersion


@dataclass(slots=True, eq=False)
class InflightRequest:
    """One request.  Each attempt is a dispatch to a server; tokens received survive the loss of that server."""

    request: GenerateRequest
    on_activity: Callable[[], None]
    """Called at each sign of life of its server."""
    on_partial_reply: OnPartialReply | None = None
    started_at: float = field(default_factory=time.monotonic)
    kept_reply: PartialReply = field(init=False)
    """Tokens received from servers that were lost."""
    server_switches: int = 0
    version: WeightVersion = NO_VERSION
    """The version that its server served at dispatch."""
    key: PrefixKey = NO_PREFIX
    """The prefix-cache key of its dispatch."""
    adapter: str = ""
    """The server's name of that version if it is an adapter; a request ends under the adapter that it began with."""
    stream: ReplyStream | None = None
    """The reply from the current server; None while the request waits."""

    def __post_init__(self) -> None:
        self.kept_reply = self.request.resume_from
        self.server_switches = int(len(self.kept_reply) > 0)

    def begin_attempt(self, version: WeightVersion, key: PrefixKey, adapter: str = "") -> ReplyStream:
        """Prepare a dispatch to a server of this version, under this key."""
        self.version, self.key, self.adapter = version, key, adapter
        self.stream = ReplyStream(self.tokens_left, version, adapter=bool(adapter), on_tokens=self._on_tokens)
        return self.stream

    def _on_tokens(self) -> None:
        self.on_activity()
        if self.on_partial_reply is not None:
            self.on_partial_reply(self.partial_reply)

    @property
    def tokens_left(self) -> int:
        """Number of tokens that may still be sampled."""
        return self.request.max_new_tokens - len(self.kept_reply)

    @property
    def input_ids(self) -> list[int]:
        """The prompt for the next server: the request's own, and the tokens received."""
        return self.request.input_ids + self.kept_reply.token_ids

    @property
    def partial_reply(self) -> PartialReply:
        """Everything received so far."""
        return (
            self.kept_reply
            if self.stream is None
            else self.kept_reply.plus(self.stream.partial_reply(self.key.version))
        )

    @property
    def token_count(self) -> int:
        """Number of tokens received."""
        return len(self.kept_reply) + (0 if self.stream is None else self.stream.token_count)

    def note_weight_change(self, version: WeightVersion) -> None:
        """Record that its server is about to continue with other weights."""
        if self.stream is not None:
            self.stream.note_weight_change(version)

    def keep_partial_reply(self) -> int:
        """Keep the tokens of the lost server; return their number."""
        before, self.kept_reply, self.stream = len(self.kept_reply), self.partial_reply, None
        kept = len(self.kept_reply) - before
        self.server_switches += kept > 0
        return kept

    def build_reply(self, sampled: SampledReply, engine: str) -> GenerateReply:
        """Return the whole reply, which ends with ``sampled``."""
        mixed = sampled.versions[0] != self.key.version
        whole = self.kept_reply.plus(PartialReply(sampled.token_ids, sampled.logprobs, sampled.versions, mixed))
        return GenerateReply(
            token_ids=whole.token_ids,
            logprobs=whole.logprobs,
            versions=whole.versions,
            finish=sampled.finish,
            key_version=self.key.version,
            mixed_prefix=whole.mixed_prefix,
            server_switches=self.server_switches,
            ms=(time.monotonic() - self.started_at) * 1000,
            cached_tokens=sampled.cached_tokens,
            engine=engine,
        )
