"""A version as a Hugging Face folder, or as one of PEFT's, that is complete when it appears and never changes."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, cast

import torch

from learner.models.hf_folder import NamedWeight, WrittenTensors, write_tensor_file, write_tensors
from learner.models.qwen import CONFIG_FILE, WEIGHTS_INDEX_FILE
from protocol.files.filesystem import build_folder
from protocol.weights import WeightManifest, WeightVersion

ADAPTER_FILE, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
"""PEFT's names."""
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_DTYPE_KEYS = ("dtype", "torch_dtype")
"""As transformers 5 and 4 call it."""


class WeightVersionInfo(NamedTuple):
    """What a manifest says of a version beside its files."""

    version: WeightVersion
    step: int
    parent: WeightVersion


def write_weights_folder(
    weights: Iterable[NamedWeight],
    sizes: Mapping[str, int],
    source: Path,
    folder: Path,
    *,
    dtype: torch.dtype,
    named: WeightVersionInfo,
    shard_bytes: int,
) -> WeightManifest:
    """Write ``weights``, of these ``sizes`` in bytes and this ``dtype``, with copies of the configuration and tokenizer
    of ``source`` beside ``folder``, then rename.  Raises OSError where ``folder`` exists and is not empty: versions are
    never written twice; nothing is left of one that failed."""
    with build_folder(folder.absolute()) as building:
        for path in sorted(source.iterdir()):
            if path.is_file() and path.suffix not in _WEIGHTS and path.name != WEIGHTS_INDEX_FILE:
                shutil.copyfile(path, building / path.name)
        _name_dtype(building / CONFIG_FILE, dtype)
        written = write_tensors(weights, sizes, building, shard_bytes)
    return _manifest(folder, named, written)


def write_adapter_folder(
    matrices: Iterable[NamedWeight], config: Mapping[str, object], folder: Path, named: WeightVersionInfo
) -> WeightManifest:
    """Write adapters alone as PEFT does, as :func:`write_folder` writes weights."""
    with build_folder(folder.absolute()) as building:
        names = write_tensor_file(building / ADAPTER_FILE, matrices)
        (building / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    return _manifest(folder, named, WrittenTensors((ADAPTER_FILE,), len(names)))


def _name_dtype(path: Path, dtype: torch.dtype) -> None:
    """Where a config.json names the type of its weights, they are loaded as that."""
    config = cast("dict[str, object]", json.loads(path.read_text()))
    config |= {key: str(dtype).removeprefix("torch.") for key in _DTYPE_KEYS if config.get(key) is not None}
    path.write_text(json.dumps(config, indent=2) + "\n")


def _manifest(folder: Path, named: WeightVersionInfo, written: WrittenTensors) -> WeightManifest:
    folder = folder.absolute()
    files = [folder / name for name in written.files]
    return WeightManifest(
        version=named.version,
        step=named.step,
        parent=named.parent,
        path=str(folder),
        sha256=_digest_of_files(files),
        tensors=written.tensors,
        bytes=sum(file.stat().st_size for file in files),
    )


def _digest_of_files(files: Iterable[Path]) -> str:
    """sha256 over their bytes, one file after the other."""
    state = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                state.update(block)
    return state.hexdigest()


def digest_weights(weights: Iterable[NamedWeight]) -> str:
    """sha256 over names, shapes, types and bytes: equal exactly when all weights are equal bit for bit."""
    state = hashlib.sha256()
    for name, tensor in weights:
        state.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        state.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
