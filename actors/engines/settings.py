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
from protocol.run_directory.layout import start_folder
from protocol.settings import ConfigSection, CountInt, PositiveInt, Seconds

_QUEUED_PER_RUNNING = 16
_OTHER_CALLS = 1_000
"""Concurrent actor calls beyond the requests that an engine accepts: status calls, and requests that it refuses."""

PrefixReuse = Literal["version", "session"]
"""Cached prefixes that a request may reuse; see :mod:`actors.engines.routing.prefix_cache`."""


class WeightTransferMode(StrEnum):
    """Transfer of new weights to an engine's machine."""

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
    """Number of SGLang servers, spread over the nodes."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of the servers."""
    tp: PositiveInt = 1
    """Number of GPUs over which a server's model is split (tensor parallelism)."""
    mem_fraction_static: Annotated[float, Field(gt=0, lt=1)] = 0.85
    """Fraction of a GPU's memory for weights and KV cache; the rest is for activations and CUDA graphs."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of the server.  On a CPU float32 is as fast, and its log-probabilities equal the learner's."""
    deterministic: bool = False
    """Sample each token with its episode's seed, so that the same weights give the same samples; slower, and CUDA only.
    Without it two evaluations share tasks and attempts, but not the random draws."""
    prefix_reuse: PrefixReuse = "version"
    """Cached prefixes that an episode may reuse after new weights: ``version``, only those computed by the same weight
    version, so none; ``session``, the episode's own, computed by older weights, so that long histories need no second
    prefill.  Such turns are marked ``mixed_prefix``."""
    pause_mode: PauseMode = "in_place"
    """SGLang's pause mode for requests in flight during a weight update: ``in_place`` keeps their KV cache; ``retract``
    frees it and prefills them again, which lets SGLang's scheduler run ahead of the device.
    ``longshore bench engine`` measures both on your machine."""
    max_total_tokens: PositiveInt = 40_000
    """Number of tokens in one server's KV cache."""
    max_running: PositiveInt = 64
    """Number of requests that one server decodes concurrently."""
    max_queued: CountInt = 0
    """Number of requests that may wait for one server; further ones are refused at once and go to another engine or are
    retried.  0 means sixteen times ``engine.max_running``."""
    start_timeout_s: Seconds = 900.0
    """Longest wait for a server to start: half a minute on an idle machine, minutes on a busy one."""
    stall_timeout_s: Seconds = 60.0
    """Seconds without a token or an answered probe after which a server is restarted.  A CPU may prefill a long history
    for minutes."""
    request_timeout_s: Seconds = 60.0
    """Longest wait for one reply, retries included."""
    weight_transfer: WeightTransferMode = WeightTransferMode.AUTO
    """Transfer of new weights to an engine's machine: ``full``, ``delta``, ``broadcast``, ``direct``, or ``auto``.
    Deltas are small if the learner's weights are bfloat16.  With ``lora.rank``, ``adapters`` publishes only the
    adapters: no engine pauses for them, and requests end under the adapter that they began with.  Decoding under
    several adapters at once is slower."""
    broadcast_device: Literal["cpu", "cuda"] = "cpu"
    """Device from which ``weight_transfer = "direct"`` broadcasts: host memory over gloo, or a dedicated GPU beside the
    learner's over NCCL."""
    load_weights_from: Literal["disk", "tensor"] = "disk"
    """SGLang's source of weights that are on its machine: it reads the files from ``disk``, or each ``tensor`` from
    shared memory (CUDA IPC on GPUs), which needs as much memory as the model.  For whole weights only, and not
    ``direct``."""
    max_adapters: Annotated[int, Field(ge=2)] = 4
    """Number of adapter versions that a server holds with ``weight_transfer = "adapters"``: the newest and those with
    requests in flight.  A new version waits until there is room."""
    update_timeout_s: Seconds = 60.0
    """Longest wait for a load of new weights.  A load that began in time gets another minute; then its server is
    restarted."""
    max_update_overhead: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Largest share of the engines' decoding time that weight updates may cost.  The engines' pauses are staggered
    accordingly: with 0.05 the last engine has new weights twenty pauses after the first one began.  With 1 each engine
    updates as soon as it can."""

    @property
    def item_bytes(self) -> int:
        """Bytes of each weight in the server."""
        return 4 if self.dtype == "float32" else 2

    @property
    def queue_limit(self) -> int:
        """Number of requests that may wait for one server."""
        return self.max_queued or _QUEUED_PER_RUNNING * self.max_running

    @property
    def max_concurrent_calls(self) -> int:
        """Concurrent calls of an engine's actor.  Ray queues further calls, health checks among them."""
        return self.max_running + self.queue_limit + _OTHER_CALLS

    @model_validator(mode="after")
    def _check_deterministic(self) -> Self:
        if self.deterministic and self.device != "cuda":
            raise ValueError(
                "engine.deterministic = true needs attention kernels that SGLang has on CUDA only: set engine.device = "
                "'cuda', or engine.deterministic = false"
            )
        return self

    @model_validator(mode="after")
    def _check_weight_transfer(self) -> Self:
        transfer = self.weight_transfer
        no_files = {WeightTransferMode.DIRECT, WeightTransferMode.ADAPTERS}
        if self.load_weights_from == "tensor" and transfer in no_files:
            raise ValueError(
                "engine.load_weights_from = 'tensor' needs whole weights on the engine's machine, and "
                f"engine.weight_transfer = '{transfer}' brings none there: leave one of the two out"
            )
        if self.broadcast_device == "cuda" and (transfer, self.device) != (WeightTransferMode.DIRECT, "cuda"):
            raise ValueError(
                "engine.broadcast_device = 'cuda' broadcasts from a GPU into those of the engines: set "
                "engine.weight_transfer = 'direct' and engine.device = 'cuda', or leave it out"
            )
        if self.prefix_reuse == "session" and transfer is WeightTransferMode.ADAPTERS:
            raise ValueError(
                "engine.prefix_reuse = 'session' has no effect with adapters, each of which has its own prefix cache: "
                "leave it out"
            )
        return self

    @model_validator(mode="after")
    def _check_tensor_parallelism(self) -> Self:
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
    """One engine: the run's settings, and values known only when it starts."""

    settings: EngineSettings
    name: str
    run_dir: Path
    model_path: str
    """The run's model folder; every version must have its tensors' names and shapes."""
    context_length: int
    """Most tokens of one request, prompt and reply together."""
    seed: int = 0
    start_number: int = 0
    node: str = ""
    offloads_memory: bool = False
    """True if the engine offloads its memory for the learner: on CUDA its server is started with a memory saver."""
    lora: LoraShape | None = None
    """Shape of the adapters, if every version is an adapter of the model in ``model_path``; the engine then never
    offloads its memory."""
    stop_grace_s: float = 1.0
    """Seconds from SIGTERM to SIGKILL when a server is stopped."""
    probe_every_s: float = 15.0
    """Seconds of silence after which a server is probed."""
    load_grace_s: float = 60.0
    """Seconds beyond its deadline that a load which has begun may take before the server is restarted."""

    @property
    def log(self) -> Path:
        """The file that the server writes its output to."""
        return start_folder(self.run_dir, self.start_number) / "logs" / f"{self.name}.log"

    @property
    def reserved_gpus(self) -> int:
        """Number of GPUs that the engine reserves; none if it uses the learner's."""
        return self.settings.tp if self.settings.device == "cuda" and not self.offloads_memory else 0

    @property
    def saves_memory(self) -> bool:
        """True if the server runs under SGLang's memory saver, which exists on CUDA only."""
        return self.offloads_memory and self.settings.device == "cuda"
