"""A run's settings of its engines (:class:`EngineSettings`), and the spec of one engine (:class:`EngineSpec`).

Only values: a configuration can be read without loading SGLang, torch or Ray.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Protocol, Self

from pydantic import Field, model_validator

from actors.engines.messages import PauseMode
from protocol.settings import ConfigSection, CountInt, PositiveInt, Seconds

_QUEUED_PER_RUNNING = 16
_OTHER_CALLS = 1_000
"""Concurrent actor calls beyond the requests that an engine accepts: status calls, and requests that it refuses."""

PrefixReuse = Literal["fresh", "session"]
"""Which cached prefixes a request may reuse; see :mod:`actors.engines.routing.prefix_cache`."""


class WeightTransferMode(StrEnum):
    """How new weights reach the place where an engine reads them."""

    AUTO = "auto"
    """``full`` on the learner's machine, ``delta`` on others."""
    FULL = "full"
    """Each engine reads the folder that the learner wrote."""
    DELTA = "delta"
    """Each machine keeps a copy and applies what changed since the version before."""
    BROADCAST = "broadcast"
    """Each machine keeps a copy; whole versions are broadcast to all machines at once over gloo."""
    DIRECT = "direct"
    """No copy: weights are broadcast into paused servers.  A server that starts reads the learner's folder."""
    ADAPTERS = "adapters"
    """Only the LoRA adapters, which servers load while they decode; they reach machines as under ``auto``."""


class EngineSettings(ConfigSection):
    """The section ``engine`` of a run: its SGLang servers and how they get new weights."""

    count: PositiveInt = 1
    """SGLang servers, spread over the nodes."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the servers run."""
    tp: PositiveInt = 1
    """GPUs that one server's model is split over (tensor parallelism)."""
    memory_share: Annotated[float, Field(gt=0, lt=1)] = 0.85
    """Share of a GPU's memory for weights and KV cache; the rest is for activations and CUDA graphs."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the server.  On a CPU float32 is as fast, and its log-probabilities equal the learner's."""
    deterministic: bool = False
    """Draw each token by its episode's seed, so that the same weights give the same samples; slower, and CUDA only.
    Without it two evaluations share tasks and attempts, but not the random draws."""
    kv: PrefixReuse = "fresh"
    """Which cached prefixes are reused after new weights: ``fresh``, none; ``session``, an episode's own, computed by
    older weights, so that long histories need no second prefill.  Such turns are marked ``mixed_prefix``."""
    pause: PauseMode = "in_place"
    """What happens to replies in flight while an engine's weights are swapped: ``in_place``, they keep their KV cache;
    ``retract``, they give it up and are prefilled again, which lets SGLang's scheduler run ahead of the device.
    ``python -m launch.bench engine`` measures both on your machine."""
    max_total_tokens: PositiveInt = 40_000
    """Tokens in one server's KV cache."""
    max_running: PositiveInt = 64
    """Requests that one server decodes together."""
    max_queued: CountInt = 0
    """Requests that may wait for one server; further ones are refused at once and go to another engine or are retried.
    0 for sixteen times ``engine.max_running``."""
    start_timeout_s: Seconds = 900.0
    """Longest wait for a server to come up: half a minute on a quiet machine, minutes on a busy one."""
    stall_timeout_s: Seconds = 60.0
    """A server that sends no token for this long and answers no probe is restarted.  A CPU can prefill a long history
    for minutes."""
    request_timeout_s: Seconds = 60.0
    """Longest wait for one reply, retries included."""
    weights: WeightTransferMode = WeightTransferMode.AUTO
    """How new weights reach an engine's machine: ``full``, ``delta``, ``broadcast``, ``direct``, or ``auto``.  Deltas
    are small when the learner's weights are bfloat16.  With ``lora.rank``, ``adapters`` publishes adapters alone: no
    engine pauses for them, and requests end under the adapter that they began with.  Decoding under several adapters
    at once is slower."""
    sender: Literal["cpu", "cuda"] = "cpu"
    """From where ``weights = "direct"`` broadcasts: host memory, over gloo, or a GPU of its own beside the learner's,
    over NCCL."""
    handover: Literal["files", "tensors"] = "files"
    """How a server gets weights that are on its machine: it reads the ``files``, or is given ``tensors`` in shared
    memory (CUDA IPC on GPUs), which takes as much room there as the model.  Whole weights only, and not ``direct``."""
    max_adapters: Annotated[int, Field(ge=2)] = 4
    """Under ``weights = "adapters"``: versions that a server holds at once, which are the newest and those with
    requests in flight.  A push waits until there is room."""
    update_timeout_s: Seconds = 60.0
    """Longest wait for a load of new weights.  A load that began in time gets one more minute; then its server is
    restarted."""
    update_loss: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Largest share of the engines' decoding time that weight swaps may cost.  The engines' pauses are staggered for
    it: at 0.05 the last engine has new weights twenty pauses after the first one began.  1: each as soon as it can."""

    @property
    def item_bytes(self) -> int:
        """Bytes of each number that the server holds."""
        return 4 if self.dtype == "float32" else 2

    @property
    def queue_limit(self) -> int:
        """Requests that may wait for one server."""
        return self.max_queued or _QUEUED_PER_RUNNING * self.max_running

    @property
    def max_concurrent_calls(self) -> int:
        """Concurrent calls of an engine's actor.  Ray makes further calls wait, health checks among them."""
        return self.max_running + self.queue_limit + _OTHER_CALLS

    @model_validator(mode="after")
    def _can_draw_by_seed(self) -> Self:
        if self.deterministic and self.device != "cuda":
            raise ValueError(
                "engine.deterministic = true needs attention kernels that SGLang has on CUDA only: set engine.device = "
                "'cuda', or engine.deterministic = false"
            )
        return self

    @model_validator(mode="after")
    def _fits_its_weight_transfer(self) -> Self:
        if self.handover == "tensors" and self.weights in {WeightTransferMode.DIRECT, WeightTransferMode.ADAPTERS}:
            raise ValueError(
                f"engine.handover = 'tensors' is for whole weights on the engine's machine, and engine.weights = "
                f"'{self.weights}' brings none there: leave one of the two out"
            )
        if self.sender == "cuda" and (self.weights, self.device) != (WeightTransferMode.DIRECT, "cuda"):
            raise ValueError(
                "engine.sender = 'cuda' is a GPU that broadcasts into those of the engines: set engine.weights = "
                "'direct' and engine.device = 'cuda', or leave it out"
            )
        if self.kv == "session" and self.weights is WeightTransferMode.ADAPTERS:
            raise ValueError(
                "engine.kv = 'session' keeps nothing where each version is an adapter with prefixes of its own: leave "
                "it out"
            )
        return self

    @model_validator(mode="after")
    def _splits_over_gpus(self) -> Self:
        if self.tp > 1 and self.device != "cuda":
            raise ValueError(f"engine.tp = {self.tp} is for GPUs: set engine.device = 'cuda', or engine.tp = 1")
        return self


class LoraShape(Protocol):
    """The adapters that a run trains, all alike; the learner's LoRA settings have this form."""

    @property
    def rank(self) -> int: ...

    @property
    def alpha(self) -> float:
        """alpha ÷ rank scales an adapter's output."""
        ...

    @property
    def projections(self) -> tuple[str, ...]:
        """Projections of each layer that have an adapter, by their Hugging Face names."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """One engine: the run's settings, and what is known only when it starts."""

    settings: EngineSettings
    name: str
    run_dir: Path
    model_path: str
    """The run's model folder; every version must have its tensors' names and shapes."""
    context_length: int
    """Most tokens of one request, prompt and reply together."""
    seed: int = 0
    attempt: int = 0
    node: str = ""
    offloads_memory: bool = False
    """Whether the engine gives up its memory for the learner at times: on CUDA the server is started for that."""
    lora: LoraShape | None = None
    """With it every version is an adapter of the model in ``model_path``, and the engine never offloads its memory."""
    stop_grace_s: float = 1.0
    """Seconds from SIGTERM to SIGKILL when a server is stopped."""
    probe_every_s: float = 15.0
    """Seconds of silence after which a server is probed."""
    load_grace_s: float = 60.0
    """Seconds beyond its deadline that a load which has begun may take before the server is restarted."""

    @property
    def log(self) -> Path:
        """The file that the server writes its output to."""
        return self.run_dir / "attempts" / str(self.attempt) / "logs" / f"{self.name}.log"

    @property
    def saves_memory(self) -> bool:
        """Whether the server runs under SGLang's memory saver, which exists on CUDA only."""
        return self.offloads_memory and self.settings.device == "cuda"
