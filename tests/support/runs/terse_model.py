"""An untrained model whose replies end after a token or two, so that episodes end soon on any machine."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from launch.data.demo.model import build_demo_model
from launch.settings.data import ModelSettings

_SIZE = ModelSettings(layers=1, hidden=32, intermediate=64, heads=1, head_dim=16)
"""One small head: on CPUs each piece of a long prompt costs the engine the square of the prompt."""
_WEIGHTS, _EMBEDDING = "model.safetensors", "model.embed_tokens.weight"
_END = 2
"""Id of the token that ends a reply."""


def build_terse_model(folder: Path, positions: int) -> None:
    """Write the model.

    Its embedding is also its output layer: every token shares one direction, of which the end has the most."""
    build_demo_model(folder, _SIZE, seed=0, positions=positions)
    weights = load_file(folder / _WEIGHTS)
    shared = torch.zeros(_SIZE.hidden)
    shared[0] = 1.0
    embedding = weights[_EMBEDDING]
    embedding += 0.1 * shared
    embedding[_END] = 2.0 * shared
    save_file(weights, folder / _WEIGHTS, {"format": "pt"})
