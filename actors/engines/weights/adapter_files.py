"""LoRA adapters as PEFT folders, and the checks before a server loads one.

SGLang would accept a folder that does not fit: it leaves out matrices that are missing and trusts the scale that the
folder claims.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from actors.engines.messages import InvalidWeights
from actors.engines.settings import LoraShape
from actors.engines.weights import weight_files
from actors.engines.weights.weight_files import ModelShape
from protocol.weights import WeightManifest, format_version

ADAPTER_CONFIG_FILE = "adapter_config.json"
_PEFT, _A, _B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"


def adapter_shape(lora: LoraShape, model: ModelShape) -> ModelShape:
    """Return the matrices that every adapter of ``model`` has, under PEFT's names."""
    matrices: weight_files.TensorShapes = {}
    for name, shape in model.shapes.items():
        layer = name.removesuffix(".weight")
        if name != layer and layer.rpartition(".")[2] in lora.projections:
            rows, columns = shape
            matrices |= {_PEFT + layer + _A: (lora.rank, columns), _PEFT + layer + _B: (rows, lora.rank)}
    return ModelShape(matrices, model.vocabulary, tied=False)


def check_adapter(manifest: WeightManifest, model: ModelShape, lora: LoraShape) -> None:
    """Read every byte and raise :class:`InvalidWeights` unless the folder is a whole adapter of ``model``."""
    weight_files.check_weights(manifest, adapter_shape(lora, model))
    _check_config(manifest, lora)


def _check_config(manifest: WeightManifest, lora: LoraShape) -> None:
    """Check the configuration, which the digest does not cover and by which the server scales the matrices."""
    file, label = Path(manifest.path) / ADAPTER_CONFIG_FILE, format_version(manifest.version)
    try:
        config = cast("dict[str, object]", json.loads(file.read_bytes()))
        targets = set(cast("list[str]", config["target_modules"]))
        found = (config["peft_type"], config["r"], config["lora_alpha"], targets)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidWeights(f"version {label} has no adapter configuration in {file}: {error!r}") from error
    expected = ("LORA", lora.rank, lora.alpha, set(lora.projections))
    if found != expected:
        raise InvalidWeights(f"version {label}: {file} says (type, r, lora_alpha, targets) {found}, the run {expected}")
