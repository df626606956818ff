"""Values and errors of the engine interface: requests, replies, states, reports.

It imports no engine, so that episodes, workers and routers can use it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from protocol.errors import InfraError, LongshoreError
from protocol.weights import WeightVersion

FinishReason = Literal["stop", "length"]

PauseMode = Literal["in_place", "retract"]
"""SGLang's treatment of requests in flight during a weight update: keep their KV cache (``in_place``), or free it and
prefill them again (``retract``).  With ``in_place`` its scheduler must not run ahead of the device, or the token in
flight is labelled with the new version although the old weights sampled it."""


class EngineStartError(InfraError):
    """The server did not start; the message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class PartialReply:
    """The beginning of an interrupted reply: lists of equal length, with the version that sampled each token.
    If two versions are possible it is the older, so that no token counts as fresher than it is."""

    token_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    mixed_prefix: bool = False
    """See :attr:`GenerateReply.mixed_prefix`."""

    def __len__(self) -> int:
        return len(self.token_ids)

    def skip_tokens(self, count: int) -> PartialReply:
        """Return it without its first ``count`` tokens."""
        return PartialReply(self.token_ids[count:], self.logprobs[count:], self.versions[count:], self.mixed_prefix)

    def plus(self, later: PartialReply) -> PartialReply:
        """Return this one followed by ``later``."""
        return PartialReply(
            self.token_ids + later.token_ids,
            self.logprobs + later.logprobs,
            self.versions + later.versions,
            self.mixed_prefix or later.mixed_prefix,
        )


EMPTY_PARTIAL_REPLY = PartialReply([], [], [])


class EngineUnavailable(InfraError):
    """The engine could not answer before the request's deadline or within its patience; another engine may."""

    def __init__(self, message: str, received: PartialReply = EMPTY_PARTIAL_REPLY) -> None:
        super().__init__(message)
        self.partial_reply = received
        """Tokens received, after which another engine can continue."""

    def __reduce__(self) -> tuple[type[EngineUnavailable], tuple[str, PartialReply]]:
        return type(self), (str(self), self.partial_reply)


class EngineBusy(EngineUnavailable):
    """The engine's queue is full; another engine may have room, or this one later."""


class RequestTimedOut(EngineUnavailable):
    """The request's own deadline passed while the engine was serving; nothing is wrong with the engine."""


class ServerLost(InfraError):
    """The connection to the server broke, or its reply contradicts itself."""


class WeightLoadError(InfraError):
    """New weights were not loaded; the engine serves, or after a restart will serve, the last confirmed ones."""


class ServerPortTaken(ServerLost):
    """Another program listens on the server's port: it does not accept our API key."""


class ServerRestarting(WeightLoadError):
    """There is no server to load weights into at the moment: the next one is being started."""


class InvalidWeights(WeightLoadError):
    """A version's files do not fit the model or their manifest; the server did not load them."""


class RequestRefused(LongshoreError):
    """The request can never be served: token ids outside the vocabulary, too long, or a temperature of 0 or less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One continuation of ``input_ids``.

    There is no top-p, top-k, penalty or grammar on purpose: the log-probabilities in the reply are those of the full
    distribution at ``temperature``, and these options would sample from another distribution.
    """

    input_ids: list[int]
    max_new_tokens: int
    temperature: float
    stop_token_ids: tuple[int, ...]
    """Sampling ends with the first of these, which is part of the reply; the model's own end tokens end it too."""
    seed: int | None
    """Used only by an engine with ``deterministic`` set, which SGLang supports on CUDA only."""
    greedy: bool
    """Take the likeliest token each time: for evaluation, never for training."""
    session: str
    """Requests of one session share a prefix, so the router keeps them on one engine."""
    deadline_s: float
    """Longest sampling in seconds; then :class:`EngineUnavailable`."""
    restart_s: float = 0.0
    """Seconds that a request may wait in addition for a server that restarts or is full."""
    patience_s: float | None = None
    """Seconds that a request may wait for an engine that does not serve; None: until both times above are over."""
    resume_from: PartialReply = EMPTY_PARTIAL_REPLY
    """The tokens of this reply that another server has sampled already; sampling continues behind them."""
    name: str = ""
    """Identifies the request to :meth:`actors.engines.interface.Engine.partial_replies`; empty if nobody asks."""

    @property
    def token_budget(self) -> int:
        """Most tokens that the request may occupy, prompt and reply together."""
        return len(self.input_ids) + self.max_new_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateReply:
    """``token_ids``, ``logprobs`` and ``versions`` have equal length: the sampled token, its log-probability
    log softmax(logits / temperature) over the full vocabulary, and the version that sampled it."""

    token_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    finish: FinishReason
    """``stop``: the last token is a stop token; ``length``: ``max_new_tokens`` were sampled."""
    key_version: int
    """The version in the prefix-cache key under which the request was last dispatched."""
    mixed_prefix: bool
    """The first token's version differs from the key's: other weights computed part of the prefix.  For a reply that
    was cut off and resumed, true if any of its parts has a mixed prefix."""
    server_switches: int
    """Number of times that the server was lost and another continued after the tokens received."""
    ms: float
    """Milliseconds from the call to the reply, waiting included."""
    cached_tokens: int
    engine: str


GenerateFunction = Callable[[GenerateRequest], Awaitable[GenerateReply]]
"""An engine, or a router in front of several, as a callable."""

OnPartialReply = Callable[[PartialReply], None]
"""Called repeatedly with everything received of a reply in flight.  None of it is sampled again, whatever dies, so each
call extends the one before and the final reply extends them all.  It runs on the serving event loop: it must not raise
and must be quick."""


class StreamingGenerateFunction(Protocol):
    """A :data:`GenerateFunction` that also reports the reply as it arrives."""

    def __call__(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> Awaitable[GenerateReply]: ...


class EngineState(StrEnum):
    NEW = "new"
    """Not started."""
    STARTING = "starting"
    """The first server is coming up."""
    SERVING = "serving"
    """Requests are dispatched."""
    UPDATING = "updating"
    """The server is paused while its weights are swapped; dispatch is held."""
    DRAINING = "draining"
    """A drain was requested: dispatch is held, requests in flight end, and another server takes over."""
    OFFLOADED = "offloaded"
    """A colocated learner uses the device: the server's memory is released, and dispatch is held."""
    RESTARTING = "restarting"
    """The server was lost; requests wait for the next one."""
    STOPPED = "stopped"
    """Nothing is served any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """An engine as health checks and ``status`` see it."""

    name: str
    state: EngineState
    version: WeightVersion
    """The last version that the server was confirmed to serve."""
    pid: int
    port: int
    node: str
    restarts: int
    start_s: float
    """Seconds that the last start took."""
    error: str
    """Why the last server was lost or the last start failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensInFlight:
    """Tokens that an engine's requests may occupy (:attr:`GenerateRequest.token_budget`), from all callers."""

    running: int
    """Tokens of requests that its server works on."""
    queued: int
    """Tokens of requests that wait for room or for the server."""
    of_caller: int
    """The caller's own share of both."""

    @property
    def of_others(self) -> int:
        """Tokens of all other callers."""
        return self.running + self.queued - self.of_caller


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """An engine's load, as it reports it to routers."""

    state: EngineState
    paused_s: float
    """Seconds since it paused for new weights; 0 if it is not paused."""
    version: WeightVersion
    """The version that it serves."""
    tokens: TokensInFlight


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """An engine's report to one router at each poll."""

    partial_replies: dict[str, PartialReply]
    """New tokens of the router's requests in flight, by request name."""
    load: EngineLoad


@dataclass(slots=True, kw_only=True)
class EngineStatistics:
    """Counters since the engine's start."""

    running: int = 0
    """Requests that the server works on now."""
    queued: int = 0
    """Requests that wait for room or for the server now."""
    requests: int = 0
    """Requests sent to a server, resends included."""
    completed: int = 0
    sampled_tokens: int = 0
    cached_tokens: int = 0
    resent: int = 0
    """Requests that lost their server and are, or were, sent to the next."""
    received_tokens: int = 0
    """Tokens of such requests that had been received and were not sampled again."""
    mixed_prefix: int = 0
    unavailable: int = 0
    loads: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightLoadReport:
    """Report of a load of weights."""

    version: WeightVersion
    pause_ms: float = 0.0
    """Duration of the pause."""
    paused_requests: int = 0
    """Requests that were in flight during the pause."""
    load_ms: float = 0.0
    """The part of the pause in which the server loaded the weights."""
    prefetch_ms: float = 0.0
    """Time to read and check the files while the engine decoded."""
    offloaded_s: float = 0.0
    """Seconds that the learner had the device, if this load ended that; not part of the pause."""
    checksum: str = ""
    """The server's own checksum of the weights in use; all engines of a run must agree on it."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The meeting point of a process group; the sender is rank 0 and listens there."""

    name: str
    address: str
    port: int
    world: int
    """Number of processes: the sender and the server's ranks."""
    backend: str
    """Backend of torch.distributed: ``gloo`` or ``nccl``."""


@dataclass(frozen=True, slots=True)
class TensorBucketSpec:
    """Tensors of one type in one file, which are read or sent together."""

    file: Path
    dtype: str
    """Torch's name of the type, such as ``bfloat16``."""
    names: Sequence[str]
    shapes: Sequence[tuple[int, ...]]
