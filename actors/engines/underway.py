"""A request under way in an engine: what has come of its reply, over all servers that worked on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from actors.engines.messages import GenerateReply, GenerateRequest, Received, Watch
from actors.engines.prefixes import NO_PREFIX, PrefixKey
from actors.engines.replies import ReplyStream, Sampled
from protocol.weights import NO_VERSION, Version


@dataclass(slots=True, eq=False)
class UnderWay:
    request: GenerateRequest
    heard: Callable[[], None]
    """Told of each sign of life of the server that works on it."""
    watch: Watch | None = None
    begun: float = field(default_factory=time.monotonic)
    kept: Received = field(init=False)
    """Of servers that were lost."""
    cuts: int = 0
    version: Version = NO_VERSION
    """Of the weights of the server that works on it, when it was asked."""
    key: PrefixKey = NO_PREFIX
    """Under which it was asked."""
    adapter: str = ""
    """The server's name of those weights, where they are an adapter: a request ends under that with which it began."""
    stream: ReplyStream | None = None
    """What comes from that server."""

    def __post_init__(self) -> None:
        self.kept = self.request.received
        self.cuts = int(len(self.kept) > 0)

    def ask(self, version: Version, key: PrefixKey, adapter: str = "") -> ReplyStream:
        """A server of these weights is asked next, under this key."""
        self.version, self.key, self.adapter = version, key, adapter
        self.stream = ReplyStream(self.left, version, adapter=bool(adapter), on_tokens=self._tell)
        return self.stream

    def _tell(self) -> None:
        self.heard()
        if self.watch is not None:
            self.watch(self.received)

    @property
    def left(self) -> int:
        """Tokens that may still be sampled."""
        return self.request.max_new_tokens - len(self.kept)

    @property
    def input_ids(self) -> list[int]:
        return self.request.input_ids + self.kept.token_ids

    @property
    def received(self) -> Received:
        """All that has come."""
        return self.kept if self.stream is None else self.kept.plus(self.stream.received(self.key.version))

    @property
    def came(self) -> int:
        """Tokens that have come."""
        return len(self.kept) + (0 if self.stream is None else self.stream.came)

    def weights_change(self, version: Version) -> None:
        """The server that works on it is about to go on with others."""
        if self.stream is not None:
            self.stream.weights_change(version)

    def cut(self) -> int:
        """The server is lost; how many of its tokens are kept."""
        before, self.kept, self.stream = len(self.kept), self.received, None
        came = len(self.kept) - before
        self.cuts += came > 0
        return came

    def whole(self, sampled: Sampled, engine: str) -> GenerateReply:
        """The reply, whose end is ``sampled``."""
        mixed = sampled.versions[0] != self.key.version
        whole = self.kept.plus(Received(sampled.token_ids, sampled.logprobs, sampled.versions, mixed))
        return GenerateReply(
            token_ids=whole.token_ids,
            logprobs=whole.logprobs,
            versions=whole.versions,
            finish=sampled.finish,
            key_version=self.key.version,
            mixed_prefix=whole.mixed_prefix,
            cuts=self.cuts,
            ms=(time.monotonic() - self.begun) * 1000,
            cached_tokens=sampled.cached_tokens,
            engine=engine,
        )
