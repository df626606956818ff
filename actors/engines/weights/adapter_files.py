"""Adapters (LoRA) as PEFT's folders: what a server that loads them is started with, and whether it may be told of one.

A folder that does not fit is found before the server hears of it: SGLang reads what it is given, leaves out matrices
that are not there, and takes the scale that the folder claims.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from actors.engines.messages import InvalidWeights
from actors.engines.weights import weight_files
from actors.engines.weights.weight_files import ModelShape
from protocol.weights import WeightManifest, format_version

ADAPTER_CONFIG_FILE = "adapter_config.json"
_PEFT, _A, _B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """The adapters that one run trains: all alike."""

    rank: int
    alpha: float
    """alpha ÷ rank multiplies what an adapter adds."""
    targets: tuple[str, ...]
    """Projections of each layer that have one."""
    max_adapters: int
    """Adapters that a server holds at once; at least 2, that which serves and the next."""

    def sglang_arguments(self, device: str) -> list[str]:
        """Of SGLang's command line.  Beside the adapters there is a place for requests without one: the probes."""
        places = str(self.max_adapters + 1)
        return [
            "--enable-lora", "--max-lora-rank", str(self.rank), "--lora-target-modules", *self.targets,
            "--max-loaded-loras", places, "--max-loras-per-batch", places,
            *(("--lora-backend", "torch_native") if device == "cpu" else ()),
        ]  # fmt: skip

    def adapter_shape(self, model: ModelShape) -> ModelShape:
        """The matrices that every adapter of ``model`` has, under PEFT's names."""
        matrices: weight_files.TensorShapes = {}
        for name, shape in model.shapes.items():
            layer = name.removesuffix(".weight")
            if name != layer and layer.rpartition(".")[2] in self.targets:
                rows, columns = shape
                matrices |= {_PEFT + layer + _A: (self.rank, columns), _PEFT + layer + _B: (rows, self.rank)}
        return ModelShape(matrices, model.vocabulary, tied=False)


def check_adapter(manifest: WeightManifest, model: ModelShape, settings: AdapterSettings) -> None:
    """Read every byte and raise :class:`BadWeights` unless the manifest's folder is a whole adapter of ``model``."""
    weight_files.check_weights(manifest, settings.adapter_shape(model))
    _check_config(manifest, settings)


def _check_config(manifest: WeightManifest, settings: AdapterSettings) -> None:
    """The digest is of the matrices alone, and the server scales them by what the configuration says."""
    file, label = Path(manifest.path) / ADAPTER_CONFIG_FILE, format_version(manifest.version)
    try:
        config = cast("dict[str, object]", json.loads(file.read_bytes()))
        targets = set(cast("list[str]", config["target_modules"]))
        said = (config["peft_type"], config["r"], config["lora_alpha"], targets)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidWeights(f"version {label} has no adapter configuration in {file}: {error!r}") from error
    told = ("LORA", settings.rank, settings.alpha, set(settings.targets))
    if said != told:
        raise InvalidWeights(f"version {label}: {file} says (type, r, lora_alpha, targets) {said}, the run {told}")
