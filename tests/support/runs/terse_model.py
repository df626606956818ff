"""An untrained model whose replies end after a token or two, so that episodes end soon on any machine."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from launch.bench.tiny_recipes import TINY_MODEL
from launch.data.demo.model import build_demo_model

_WEIGHTS, _EMBEDDING = "model.safetensors", "model.embed_tokens.weight"
_END = 2
"""Id of the token that ends a reply."""


def build_terse_model(folder: Path, positions: int) -> None:
    """Write the model.

    Its embedding is also its output layer: every token shares one direction, of which the end has the most."""
    build_demo_model(folder, TINY_MODEL, seed=0, positions=positions)
    weights = load_file(folder / _WEIGHTS)
    shared = torch.zeros(TINY_MODEL.hidden)
    shared[0] = 1.0
    embedding = weights[_EMBEDDING]
    embedding += 0.1 * shared
    embedding[_END] = 2.0 * shared
    save_file(weights, folder / _WEIGHTS, {"format": "pt"})
