"""What a run says of one engine.  Only values, so that a configuration can be read without loading one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from actors.engines.messages import PauseMode
from actors.engines.routing.prefix_cache import PrefixReuse
from actors.engines.server.process import SGLangServerSettings
from actors.engines.weights.adapter_files import AdapterSettings

_QUEUED_PER_RUNNING = 16
_OTHER_CALLS = 1_000
"""At once that are no requests to sample, or are refused at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    name: str
    run_dir: Path
    model_path: str
    """The run's model folder: every manifest must have its tensors' names and shapes."""
    context_length: int
    max_total_tokens: int | None = None
    """KV slots; None lets the server fill its memory share."""
    max_running: int
    """Requests that the server works on at once; further ones wait in the engine."""
    max_queued: int = 0
    """How many may wait; one more is refused at once.  0: sixteen times ``max_running``."""
    device: Literal["cpu", "cuda"]
    tp: int = 1
    """GPUs that share the server's model."""
    memory_share: float = 0.85
    """Of a GPU's memory, for weights and KV."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0
    attempt: int = 0
    node: str = ""
    start_timeout_s: float = 300.0
    stop_grace_s: float = 1.0
    stall_timeout_s: float = 60.0
    """A server that is silent for so long, with a probe waiting, is restarted."""
    probe_every_s: float = 15.0
    load_grace_s: float = 60.0
    """Seconds beyond its deadline that a load which has begun may take before the server is restarted."""
    deterministic: bool = False
    """Honour ``GenerateRequest.seed``; SGLang gives up its prefix cache for it with most attention backends."""
    weight_loader: Literal["files", "tensors"] = "files"
    """How the server gets weights that are on this machine: it reads their files, or is given them in memory."""
    prefix_reuse: PrefixReuse = "fresh"
    """Which prefixes are reused (:mod:`.prefixes`)."""
    pause_mode: PauseMode = "in_place"
    """What requests do that are being sampled while weights are exchanged."""
    offloads_memory: bool = False
    """Whether :meth:`Engine.lend` is used: on CUDA the server is started for it."""
    adapters: AdapterSettings | None = None
    """With them every version is an adapter of the model in ``model_path``, and :meth:`Engine.lend` is not used."""

    @property
    def item_bytes(self) -> int:
        """Of each number that the server holds."""
        return 4 if self.dtype == "float32" else 2

    @property
    def queue_limit(self) -> int:
        return self.max_queued or _QUEUED_PER_RUNNING * self.max_running

    @property
    def max_concurrent_calls(self) -> int:
        """Of the engine's actor at once; Ray lets further ones wait, those that ask how it is among them."""
        return self.max_running + self.queue_limit + _OTHER_CALLS

    def server_settings(self) -> SGLangServerSettings:
        return SGLangServerSettings(
            device=self.device,
            tp=self.tp,
            memory_share=self.memory_share,
            dtype=self.dtype,
            context_length=self.context_length,
            max_total_tokens=self.max_total_tokens,
            max_running=self.max_running + 1,  # the probe always finds a place
            seed=self.seed,
            deterministic=self.deterministic,
            offloads_memory=self.offloads_memory,
            adapters=self.adapters,
            pause_mode=self.pause_mode,
            log=self.run_dir / "attempts" / str(self.attempt) / "logs" / f"{self.name}.log",
            start_timeout_s=self.start_timeout_s,
            stop_grace_s=self.stop_grace_s,
        )
