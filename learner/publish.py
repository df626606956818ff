"""A version as a Hugging Face folder that is complete when it appears and never changes."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from learner.convert import NamedWeight
from learner.qwen import INDEX_FILE, SINGLE_FILE
from protocol.weights import Version, WeightManifest

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


def write_folder(
    weights: Iterable[NamedWeight], source: Path, folder: Path, *, version: Version, step: int, parent: Version
) -> WeightManifest:
    """Write ``weights`` with the configuration and tokenizer of ``source`` beside ``folder``, then rename.  Raises
    OSError where ``folder`` exists and is not empty: versions are never written twice."""
    folder = folder.absolute()
    building = folder.with_name(f".{folder.name}.building")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.is_file() and path.suffix not in _WEIGHTS and path.name != INDEX_FILE:
            _link_or_copy(path, building / path.name)
    tensors: dict[str, Tensor] = {name: tensor.contiguous() for name, tensor in weights}
    save: Callable[..., None] = vars(safetensors.torch)["save_file"]  # its own types are partial
    save(tensors, building / SINGLE_FILE, metadata={"format": "pt"})
    with (building / SINGLE_FILE).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = (building / SINGLE_FILE).stat().st_size
    building.rename(folder)
    return WeightManifest(
        version=version, step=step, parent=parent, path=str(folder), sha256=digest, tensors=len(tensors), bytes=size
    )


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
