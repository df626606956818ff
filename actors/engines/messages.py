"""What is said to an engine and what it answers: requests, replies, states, errors.

Only values, so that an episode, a worker and a router can speak of engines without loading one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from protocol.errors import InfraError, LongshoreError
from protocol.weights import WeightVersion

FinishReason = Literal["stop", "length"]

PauseMode = Literal["in_place", "retract"]
"""What a server does with requests that it is sampling while its weights are exchanged: it keeps their KV, or gives
that back and prefills it anew.  With the first its scheduler must not run ahead of the device, else the token in flight
bears the new version though the old weights sampled it."""


class EngineStartError(InfraError):
    """The server did not come to answer a request; the message ends with its log's last lines."""


@dataclass(frozen=True, slots=True)
class PartialReply:
    """The beginning of a reply that was cut off: lists of equal length, each token with the weights that sampled it.
    Of a token for which two come into question, the older: none is taken for younger than it is."""

    token_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    mixed_prefix: bool = False
    """As :attr:`GenerateReply.mixed_prefix`."""

    def __len__(self) -> int:
        return len(self.token_ids)

    def skip_tokens(self, count: int) -> PartialReply:
        """Without the first ``count`` tokens."""
        return PartialReply(self.token_ids[count:], self.logprobs[count:], self.versions[count:], self.mixed_prefix)

    def plus(self, later: PartialReply) -> PartialReply:
        """Both, one after the other."""
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
        """With it another engine goes on where this one was cut off."""

    def __reduce__(self) -> tuple[type[EngineUnavailable], tuple[str, PartialReply]]:
        return type(self), (str(self), self.partial_reply)


class EngineBusy(EngineUnavailable):
    """The engine's queue is full; another engine, or a later moment, may do."""


class RequestTimedOut(EngineUnavailable):
    """The request's own time was over while the engine served: that says nothing of the engine."""


class ServerLost(InfraError):
    """The server's connection broke, or what it says makes no sense."""


class WeightLoadError(InfraError):
    """New weights were not taken; the engine serves, or will serve after a restart, the last confirmed ones."""


class PortTaken(ServerLost):
    """What listens on its port is not the server: it does not know our key."""


class ServerRestarting(WeightLoadError):
    """There is none to load them at present: another one is being started, and nothing is sampled meanwhile."""


class InvalidWeights(WeightLoadError):
    """A manifest's files are not the model's, or not what the manifest says; the server was not told of them."""


class RequestRefused(LongshoreError):
    """The request can never be served: ids outside the vocabulary, too long, or a temperature that means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One continuation of ``input_ids``.

    There is no top-p, top-k, penalty or grammar on purpose: the log-probabilities that come back are of the full
    distribution at ``temperature``, and those options would sample from another one.
    """

    input_ids: list[int]
    max_new_tokens: int
    temperature: float
    stop_token_ids: tuple[int, ...]
    """Sampling ends with the first of these, which is part of the reply; the model's own end tokens end it too."""
    seed: int | None
    """Used by an engine with ``deterministic`` set; SGLang ignores a request's seed otherwise, and offers that
    mode on CUDA only."""
    greedy: bool
    """Take the likeliest token each time: for evaluation, and never for training."""
    session: str
    """Requests of one session share a prefix: the router keeps them on one engine."""
    deadline_s: float
    """Longest sampling in seconds; after it :class:`EngineUnavailable`."""
    restart_s: float = 0.0
    """Seconds that may pass beside, until a server is back or has a place: its restart is not the request's fault."""
    patience_s: float | None = None
    """Seconds that a request may wait for an engine that serves nobody; None: until both are over."""
    resume_from: PartialReply = EMPTY_PARTIAL_REPLY
    """What another server has sampled of this reply already: sampling goes on behind it."""
    name: str = ""
    """By which :meth:`actors.engines.engine.Engine.received` knows it while it is under way; empty: not at all."""

    @property
    def token_budget(self) -> int:
        """Prompt and reply, at most: what it may take up of an engine."""
        return len(self.input_ids) + self.max_new_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateReply:
    """``token_ids``, ``logprobs`` and ``versions`` have equal length: sampled token, its log-probability
    log softmax(logits / temperature) over the full vocabulary, and the weights that sampled it."""

    token_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    finish: FinishReason
    """``stop``: a stop token came and is the last one; ``length``: ``max_new_tokens`` were sampled."""
    key_version: int
    """The version in the KV key under which the request was dispatched, last."""
    mixed_prefix: bool
    """The first token's version differs from that of the key: part of the prefix was computed by other weights.  Of a
    reply that was cut off, in any of its parts, each of which was dispatched under a key of its own."""
    cuts: int
    """Times that a server was lost, and another went on behind the tokens received."""
    ms: float
    """Wall milliseconds from the call to the reply, waiting included."""
    cached_tokens: int
    engine: str


GenerateFunction = Callable[[GenerateRequest], Awaitable[GenerateReply]]
"""An engine, or a router before several, as who asks sees it."""

OnPartialReply = Callable[[PartialReply], None]
"""Told of a reply under way, again and again: all that has come of it, and will not be sampled again whatever dies.  So
each begins with the one before, and the reply with each.  Called where requests are served: must not raise, or take
long."""


class StreamingGenerateFunction(Protocol):
    """The same, for who wants to see a reply as it comes."""

    def __call__(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> Awaitable[GenerateReply]: ...


class EngineState(StrEnum):
    NEW = "new"
    """Not started."""
    STARTING = "starting"
    """The first server is on its way up."""
    SERVING = "serving"
    UPDATING = "updating"
    """Paused in place while weights are exchanged; dispatch is held."""
    DRAINING = "draining"
    """As it was asked to: dispatch is held, what is being sampled ends, and another server takes its place."""
    OFFLOADED = "offloaded"
    """It is the learner's turn on the device: memory given away, dispatch held."""
    RESTARTING = "restarting"
    """The server was lost; requests wait for the next one."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    name: str
    state: EngineState
    version: WeightVersion
    """Last version confirmed by the server."""
    pid: int
    port: int
    node: str
    restarts: int
    start_s: float
    """Seconds that the last start took."""
    error: str
    """Why the last server was lost, or the last start failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensInFlight:
    """What an engine's requests may take up (:attr:`GenerateRequest.tokens`), whoever asked for them."""

    running: int
    """Of those that its server works on."""
    queued: int
    """Of those that wait for a place or for the server."""
    of_caller: int
    """Of both: those of whoever wants to know."""

    @property
    def of_others(self) -> int:
        return self.running + self.queued - self.of_caller


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """What an engine tells routers of itself."""

    state: EngineState
    paused_s: float
    """How long it has stood still for new weights; 0 while it does not."""
    version: WeightVersion
    """That it serves."""
    tokens: TokensInFlight


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """What an engine tells one router, again and again."""

    partial_replies: dict[str, PartialReply]
    """Of the router's requests that are under way: what has come, by name."""
    load: EngineLoad


@dataclass(slots=True, kw_only=True)
class EngineStatistics:
    """Counted since the engine's start."""

    running: int = 0
    """Requests sent to the server, now."""
    queued: int = 0
    """Requests that wait for a place or for the server, now."""
    requests: int = 0
    """Requests sent to the server, the same one again included."""
    completed: int = 0
    sampled_tokens: int = 0
    cached_tokens: int = 0
    resent: int = 0
    """Requests that lost their server and wait to be sent again, or were."""
    received_tokens: int = 0
    """Of those, what had come and was not sampled again."""
    mixed_prefix: int = 0
    unavailable: int = 0
    loads: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightLoadReport:
    version: WeightVersion
    pause_ms: float = 0.0
    """How long the engine stood still."""
    paused_requests: int = 0
    """Requests that were being sampled, and stood still with it."""
    load_ms: float = 0.0
    """The part of the pause that the server took to read and exchange the weights."""
    prefetch_ms: float = 0.0
    """Reading and checking the files, while the engine decoded."""
    offloaded_s: float = 0.0
    """How long the device was the learner's, where this load ended that: no pause for a load."""
    checksum: str = ""
    """The server's own, of the weights in use: the same on every engine of a fleet."""


@dataclass(frozen=True, slots=True)
class EnginePids:
    """Processes of one engine, for tests that kill."""

    reaper: int
    server: int
    """Leader of the server's process group."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where a process group meets; the sender is its rank 0 and listens there."""

    name: str
    address: str
    port: int
    world: int
    """Processes: the sender and the server's ranks."""
    backend: str
    """Of torch.distributed."""
