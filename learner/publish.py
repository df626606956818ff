"""A version as a Hugging Face folder that is complete when it appears and never changes."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from learner.folder import NamedWeight, write_tensors
from learner.qwen import INDEX_FILE
from protocol.weights import Version, WeightManifest

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


def write_folder(
    weights: Iterable[NamedWeight],
    sizes: Mapping[str, int],
    source: Path,
    folder: Path,
    *,
    version: Version,
    step: int,
    parent: Version,
    shard_bytes: int,
) -> WeightManifest:
    """Write ``weights``, of these ``sizes`` in bytes, with the configuration and tokenizer of ``source`` beside
    ``folder``, then rename.  Raises OSError where ``folder`` exists and is not empty: versions are never written
    twice."""
    folder = folder.absolute()
    building = folder.with_name(f".{folder.name}.building")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.is_file() and path.suffix not in _WEIGHTS and path.name != INDEX_FILE:
            _link_or_copy(path, building / path.name)
    written = write_tensors(weights, sizes, building, shard_bytes)
    files = [building / name for name in written.files]
    digest = _digest_of_files(files)
    size = sum(file.stat().st_size for file in files)
    building.rename(folder)
    return WeightManifest(
        version=version, step=step, parent=parent, path=str(folder), sha256=digest, tensors=written.tensors, bytes=size
    )


def _digest_of_files(files: Iterable[Path]) -> str:
    """sha256 over their bytes, one file after the other."""
    state = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                state.update(block)
    return state.hexdigest()


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system
        shutil.copyfile(source, target)


def digest(weights: Iterable[NamedWeight]) -> str:
    """sha256 over names, shapes, types and bytes: equal exactly when all weights are equal bit for bit."""
    state = hashlib.sha256()
    for name, tensor in weights:
        state.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        state.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
