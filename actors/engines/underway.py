"""A request under way in an engine: what has come of its reply, over all servers that worked on it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from actors.engines.messages import GenerateReply, GenerateRequest, Received
from actors.engines.replies import ReplyStream, Sampled
from protocol.weights import NO_VERSION, Version


@dataclass(slots=True, eq=False)
class UnderWay:
    request: GenerateRequest
    begun: float = field(default_factory=time.monotonic)
    kept: Received = field(init=False)
    """Of servers that were lost."""
    cuts: int = 0
    version: Version = NO_VERSION
    """Of the KV key under which the server was asked that works on it, and of that server's weights then."""
    stream: ReplyStream | None = None
    """What comes from that server."""

    def __post_init__(self) -> None:
        self.kept = self.request.received
        self.cuts = int(len(self.kept) > 0)

    def ask(self, version: Version) -> ReplyStream:
        """A server of these weights is asked next."""
        self.version = version
        self.stream = ReplyStream(self.left)
        return self.stream

    @property
    def left(self) -> int:
        """Tokens that may still be sampled."""
        return self.request.max_new_tokens - len(self.kept)

    @property
    def input_ids(self) -> list[int]:
        return self.request.input_ids + self.kept.token_ids

    @property
    def received(self) -> Received:
        """All that has come whose weights are certain."""
        return self.kept if self.stream is None else self.kept.plus(self.stream.received(self.version))

    def weights_change(self) -> None:
        """The server that works on it is about to load others."""
        if self.stream is not None:
            self.stream.weights_change()

    def cut(self) -> int:
        """The server is lost; how many of its tokens are kept."""
        before, self.kept, self.stream = len(self.kept), self.received, None
        came = len(self.kept) - before
        self.cuts += came > 0
        return came

    def whole(self, sampled: Sampled, engine: str) -> GenerateReply:
        """The reply, whose end is ``sampled``."""
        end = Received(sampled.token_ids, sampled.logprobs, sampled.versions)
        whole = self.kept.plus(end)
        return GenerateReply(
            token_ids=whole.token_ids,
            logprobs=whole.logprobs,
            versions=whole.versions,
            finish=sampled.finish,
            key_version=self.version,
            mixed_prefix=sampled.versions[0] != self.version,
            cuts=self.cuts,
            ms=(time.monotonic() - self.begun) * 1000,
            cached_tokens=sampled.cached_tokens,
            engine=engine,
        )
