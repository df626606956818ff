"""A fake: an engine that says the same few tokens whenever it is asked, each with the same log-probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from actors.engines.messages import EngineState, EngineStatus, EngineUnavailable, GenerateReply, GenerateRequest
from protocol.weights import WeightVersion

LOGPROB = -1.0
TOKENS = 8


@dataclass
class FakeParityEngine:
    serving: Callable[[], WeightVersion]
    """The version that the engine reports as served."""
    gap: float = 0.0
    """The amount by which the engine's log-probabilities are below the learner's."""
    state: EngineState = EngineState.SERVING
    sampling: WeightVersion | None = None
    """The version that samples the last token of a reply, where it differs from the served one."""
    mixed: bool = False
    lost: bool = False
    """The engine replies to no request."""
    received_requests: list[GenerateRequest] = field(default_factory=list[GenerateRequest])

    async def status(self) -> EngineStatus:
        return EngineStatus(
            name="engine",
            state=self.state,
            version=self.serving(),
            pid=0,
            port=0,
            node="",
            restarts=0,
            start_s=0.0,
            error="",
        )

    async def generate(self, request: GenerateRequest) -> GenerateReply:
        if self.lost:
            raise EngineUnavailable("its server is gone")
        self.received_requests.append(request)
        count, version = min(TOKENS, request.max_new_tokens), self.serving()
        return GenerateReply(
            token_ids=[7] * count,
            logprobs=[LOGPROB - self.gap] * count,
            versions=[*[version] * (count - 1), version if self.sampling is None else self.sampling],
            finish="length",
            key_version=version,
            mixed_prefix=self.mixed,
            server_switches=0,
            ms=1.0,
            cached_tokens=0,
            engine="engine",
        )
