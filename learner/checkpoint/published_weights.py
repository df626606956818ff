"""Weight versions as Hugging Face or PEFT folders, complete when they appear and never changed."""

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
"""File names of PEFT."""
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_DTYPE_KEYS = ("dtype", "torch_dtype")
"""Key of the data type in transformers 5 and 4."""


class WeightVersionInfo(NamedTuple):
    """Identity of a version in its manifest."""

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
    """Write ``weights``, with their ``sizes`` in bytes and ``dtype``, and copies of the configuration and tokenizer of
    ``source``, atomically to ``folder``.  Raises OSError if ``folder`` exists and is not empty: versions are never
    written twice, and a failure leaves nothing behind."""
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
    """Write adapters in PEFT's format, as :func:`write_weights_folder` writes weights."""
    with build_folder(folder.absolute()) as building:
        names = write_tensor_file(building / ADAPTER_FILE, matrices)
        (building / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    return _manifest(folder, named, WrittenTensors((ADAPTER_FILE,), len(names)))


def _name_dtype(path: Path, dtype: torch.dtype) -> None:
    """Set the data type in a config.json that names one, because weights are loaded with it."""
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
    """Return the sha256 over the concatenated files."""
    state = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                state.update(block)
    return state.hexdigest()


def digest_weights(weights: Iterable[NamedWeight]) -> str:
    """Return a sha256 over names, shapes, types and bytes, which is equal for bitwise equal weights only."""
    state = hashlib.sha256()
    for name, tensor in weights:
        state.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        state.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
