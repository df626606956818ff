"""Publishing the weights of a learner: copies them from all ranks, and writes them as one version's folder on rank
0."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from learner.checkpoint.published_weights import (
    WeightVersionInfo,
    digest_weights,
    write_adapter_folder,
    write_weights_folder,
)
from learner.models import weight_conversion
from learner.models.hf_folder import NamedWeight
from learner.models.lora import export_adapters, make_peft_config
from learner.models.policy_model import PolicyModel
from learner.models.qwen import QwenConfig
from learner.parallel.layout import ParallelLayout
from learner.spec import LearnerSpec
from protocol.errors import UserError
from protocol.weights import WeightManifest


class WeightWriter:
    """Publishes the weights of one learner.  Exporting is a collective of all ranks; only rank 0 writes and returns the
    manifest, the others return None."""

    def __init__(self, spec: LearnerSpec, model: PolicyModel, config: QwenConfig, layout: ParallelLayout) -> None:
        self._spec, self._model, self._config, self._layout = spec, model, config, layout
        self._copies: list[NamedWeight] = []
        """Copies made by :meth:`copy` for :meth:`write_copy`; empty on ranks that do not write."""

    def publish(self, info: WeightVersionInfo, folder: Path) -> WeightManifest | None:
        """Write the weights with adapters merged into them, one file at a time."""
        if self._layout.is_writer:
            return self._write(self.export(), info, folder)
        deque(self.export(), 0)  # the other ranks only take part in the collective
        return None

    def publish_adapter(self, info: WeightVersionInfo, folder: Path) -> WeightManifest | None:
        """Write only the adapters."""
        matrices = list(self.export_adapters())
        return self._write_adapter(matrices, info, folder) if self._layout.is_writer else None

    def copy(self) -> None:
        """Copy the weights, or with ``publish_adapters`` the adapters, for :meth:`write_copy`."""
        exported = self.export_adapters() if self._spec.publish_adapters else self.export()
        self._copies = [weight for weight in exported if self._layout.is_writer]

    def write_copy(self, info: WeightVersionInfo, folder: Path) -> WeightManifest | None:
        """Write the copies made by :meth:`copy`.  It is not a collective and may run concurrently with any call."""
        copies, self._copies = self._copies, []
        if not self._layout.is_writer:
            return None
        write = self._write_adapter if self._spec.publish_adapters else self._write
        return write(copies, info, folder)

    def digest(self) -> str:
        """Return a sha256 over all weights and adapters, the same on every rank, which is equal for bitwise equal
        weights only."""
        return digest_weights(itertools.chain(self.export(), self.export_adapters()))

    def export(self) -> Iterable[NamedWeight]:
        """Yield the weights under Hugging Face names, with adapters merged."""
        return weight_conversion.export_weights(self._model, self._config, self._layout)

    def export_adapters(self) -> Iterable[NamedWeight]:
        """Yield the adapters under PEFT's names; nothing without LoRA."""
        lora = self._spec.lora
        return export_adapters(self._model, self._config, lora, self._layout) if lora.enabled else ()

    def _write(self, weights: Iterable[NamedWeight], info: WeightVersionInfo, folder: Path) -> WeightManifest:
        dtype = self._model.config.params_dtype
        return write_weights_folder(
            weights,
            weight_conversion.hf_tensor_bytes(self._config, dtype),
            Path(self._spec.model_path),
            folder,
            dtype=dtype,
            named=info,
            shard_bytes=self._spec.trainer.shard_bytes,
        )

    def _write_adapter(self, matrices: Iterable[NamedWeight], info: WeightVersionInfo, folder: Path) -> WeightManifest:
        lora = self._spec.lora
        if not lora.enabled:
            raise UserError("there are no adapters to publish: set lora.rank = 16, say, or publish() the weights")
        return write_adapter_folder(matrices, make_peft_config(lora, self._spec.model_path), folder, info)
