"""Adapters of the tiny model: random ones, and those that make it say one token, so that one sees which is at work."""

import hashlib
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from actors.engines.weights.adapter_files import ADAPTER_CONFIG_FILE, adapter_shape
from actors.engines.weights.weight_files import read_model_shape
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.support.actors.engine_specs import Lora

LORA = Lora(4, 8.0, ("q_proj", "v_proj", "o_proj"))
FIRST_WORD = 100
"""The token that the first talker says; the next ones follow it."""
_LAYER = "base_model.model.model.layers.0.self_attn."


def write_listener(source: Path, folder: Path, words: int) -> None:
    """The model in ``source``, changed so that an adapter can make it say any of so many tokens: each of them has a
    direction of its own in the embedding, which is the output head too, and all tokens have one in common."""
    shutil.copytree(source, folder)
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if "proj" in name:
            tensor.mul_(0.1)
    embedding = tensors["model.embed_tokens.weight"]
    embedding.mul_(0.1)
    embedding[:, 0] = 1.0
    for word in range(words):
        embedding[FIRST_WORD + word, 1 + word] = 20.0
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write_talker(base: Path, folder: Path, word: int, lora: Lora = LORA) -> None:
    """An adapter that makes a listener say that word for ever: v takes what all tokens have in common, and o turns it
    into the word's direction."""
    matrices = _zeros(base, lora)
    matrices[f"{_LAYER}v_proj.lora_A.weight"][0, 0] = 1.0
    matrices[f"{_LAYER}v_proj.lora_B.weight"][0, 0] = 1.0
    matrices[f"{_LAYER}o_proj.lora_A.weight"][0, 0] = 1.0
    matrices[f"{_LAYER}o_proj.lora_B.weight"][1 + word, 0] = 1000.0
    write(folder, matrices, lora)


def write_random(base: Path, folder: Path, seed: int, lora: Lora = LORA) -> None:
    generator = torch.Generator().manual_seed(seed)
    matrices = _zeros(base, lora)
    write(folder, {name: zero.normal_(0, 0.1, generator=generator) for name, zero in matrices.items()}, lora)


def write(folder: Path, matrices: dict[str, torch.Tensor], lora: Lora) -> None:
    folder.mkdir()
    save_file(matrices, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "target_modules": list(lora.projections),
    }
    (folder / ADAPTER_CONFIG_FILE).write_text(json.dumps(config))


def write_merged(base: Path, adapter: Path, folder: Path, lora: Lora = LORA) -> None:
    """The model with the adapter in its weights."""
    shutil.copytree(base, folder)
    tensors, matrices = load_file(folder / "model.safetensors"), load_file(adapter / "adapter_model.safetensors")
    for name, a in matrices.items():
        if name.endswith(".lora_A.weight"):
            layer = name.removesuffix(".lora_A.weight")
            product = matrices[f"{layer}.lora_B.weight"] @ a
            tensors[f"{layer.removeprefix('base_model.model.')}.weight"] += lora.alpha / lora.rank * product
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def manifest(version: int, folder: Path) -> WeightManifest:
    data = (folder / "adapter_model.safetensors").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return WeightManifest(WeightVersion(version), version, NO_VERSION, str(folder), digest, 0, len(data))


def _zeros(base: Path, lora: Lora) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(shape) for name, shape in adapter_shape(lora, read_model_shape(base)).shapes.items()}
