"""The shape of a dense Qwen3, read from a Hugging Face ``config.json`` without transformers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from protocol.errors import UserError

_T = TypeVar("_T")

SINGLE_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
"""Where a Hugging Face folder has its weights: one file, or the index of several."""


@dataclass(frozen=True, slots=True)
class QwenConfig:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool

    def parameters(self) -> int:
        """Number of weights; a tied output layer counts once."""
        q, kv = self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim
        attention = self.hidden_size * (2 * q + 2 * kv) + 2 * self.head_dim
        layer = attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size
        tables = (1 if self.tie_word_embeddings else 2) * self.vocab_size * self.hidden_size
        return tables + self.num_hidden_layers * layer + self.hidden_size


def padded_vocabulary(config: QwenConfig, tp: int) -> int:
    """Each rank's share of the vocabulary has the same size; the rows added for it are zero and never predicted."""
    return -(-config.vocab_size // tp) * tp


def read_config(folder: Path) -> QwenConfig:
    """Raises UserError where the folder has no config.json or the model is not a dense Qwen3 with plain rotary
    embeddings."""
    path = folder / "config.json"
    try:
        read: object = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}; model_path must be a Hugging Face model folder") from error
    if not isinstance(read, dict):
        raise UserError(f"{path} holds no JSON object; model_path must be a Hugging Face model folder")
    raw = cast("dict[str, object]", read)

    def get(name: str, kind: type[_T], default: _T | None = None) -> _T:
        value = raw.get(name, default)
        if not isinstance(value, kind):
            raise UserError(f"{path}: {name} is {value!r}, expected {kind.__name__}")
        return value

    if raw.get("model_type") != "qwen3":
        raise UserError(f"{path}: model_type is {raw.get('model_type')!r}; the learner trains dense Qwen3 models")
    for name, plain in (("attention_bias", False), ("hidden_act", "silu"), ("use_sliding_window", False)):
        if raw.get(name, plain) != plain:
            raise UserError(f"{path}: {name}={raw[name]!r} is not supported, only {plain!r}")
    # transformers 5 writes rope_parameters; 4 wrote rope_theta and rope_scaling.
    rope = cast("dict[str, object]", raw.get("rope_parameters") or raw.get("rope_scaling") or {})
    if rope.get("rope_type", "default") != "default":
        raise UserError(f"{path}: rotary embeddings {rope!r} are not supported, only rope_type 'default'")
    theta = rope.get("rope_theta", raw.get("rope_theta", 10000.0))
    if not isinstance(theta, int | float):
        raise UserError(f"{path}: rope_theta is {theta!r}, expected a number")
    heads, hidden = get("num_attention_heads", int), get("hidden_size", int)
    return QwenConfig(
        vocab_size=get("vocab_size", int),
        hidden_size=hidden,
        intermediate_size=get("intermediate_size", int),
        num_hidden_layers=get("num_hidden_layers", int),
        num_attention_heads=heads,
        num_key_value_heads=get("num_key_value_heads", int, heads),
        head_dim=get("head_dim", int, hidden // heads),
        rms_norm_eps=get("rms_norm_eps", float, 1e-6),
        rope_theta=float(theta),
        max_position_embeddings=get("max_position_embeddings", int, 32768),
        tie_word_embeddings=get("tie_word_embeddings", bool, default=False),
    )
