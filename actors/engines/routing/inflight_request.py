"""A request under way in an engine: what has come of its reply, over all servers that worked on it."""

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
    request: GenerateRequest
    on_activity: Callable[[], None]
    """Told of each sign of life of the server that works on it."""
    on_partial_reply: OnPartialReply | None = None
    started_at: float = field(default_factory=time.monotonic)
    kept_reply: PartialReply = field(init=False)
    """Of servers that were lost."""
    cuts: int = 0
    version: WeightVersion = NO_VERSION
    """Of the weights of the server that works on it, when it was asked."""
    key: PrefixKey = NO_PREFIX
    """Under which it was asked."""
    adapter: str = ""
    """The server's name of those weights, where they are an adapter: a request ends under that with which it began."""
    stream: ReplyStream | None = None
    """What comes from that server."""

    def __post_init__(self) -> None:
        self.kept_reply = self.request.resume_from
        self.cuts = int(len(self.kept_reply) > 0)

    def begin_attempt(self, version: WeightVersion, key: PrefixKey, adapter: str = "") -> ReplyStream:
        """A server of these weights is asked next, under this key."""
        self.version, self.key, self.adapter = version, key, adapter
        self.stream = ReplyStream(self.tokens_left, version, adapter=bool(adapter), on_tokens=self._tell)
        return self.stream

    def _tell(self) -> None:
        self.on_activity()
        if self.on_partial_reply is not None:
            self.on_partial_reply(self.partial_reply)

    @property
    def tokens_left(self) -> int:
        """Tokens that may still be sampled."""
        return self.request.max_new_tokens - len(self.kept_reply)

    @property
    def input_ids(self) -> list[int]:
        return self.request.input_ids + self.kept_reply.token_ids

    @property
    def partial_reply(self) -> PartialReply:
        """All that has come."""
        return (
            self.kept_reply
            if self.stream is None
            else self.kept_reply.plus(self.stream.partial_reply(self.key.version))
        )

    @property
    def token_count(self) -> int:
        """Tokens that have come."""
        return len(self.kept_reply) + (0 if self.stream is None else self.stream.token_count)

    def note_weight_change(self, version: WeightVersion) -> None:
        """The server that works on it is about to go on with others."""
        if self.stream is not None:
            self.stream.note_weight_change(version)

    def keep_partial_reply(self) -> int:
        """The server is lost; how many of its tokens are kept."""
        before, self.kept_reply, self.stream = len(self.kept_reply), self.partial_reply, None
        came = len(self.kept_reply) - before
        self.cuts += came > 0
        return came

    def build_reply(self, sampled: SampledReply, engine: str) -> GenerateReply:
        """The reply, whose end is ``sampled``."""
        mixed = sampled.versions[0] != self.key.version
        whole = self.kept_reply.plus(PartialReply(sampled.token_ids, sampled.logprobs, sampled.versions, mixed))
        return GenerateReply(
            token_ids=whole.token_ids,
            logprobs=whole.logprobs,
            versions=whole.versions,
            finish=sampled.finish,
            key_version=self.key.version,
            mixed_prefix=whole.mixed_prefix,
            cuts=self.cuts,
            ms=(time.monotonic() - self.started_at) * 1000,
            cached_tokens=sampled.cached_tokens,
            engine=engine,
        )
