"""The shape of a dense Qwen2.5 or Qwen3, read from a Hugging Face ``config.json`` without transformers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from protocol.errors import UserError

_T = TypeVar("_T")

CONFIG_FILE = "config.json"
WEIGHTS_FILE, WEIGHTS_INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
"""Names of a Hugging Face folder's weight file, or of the index of several."""


@dataclass(frozen=True, slots=True)
class QwenFamily:
    """Differences between models by ``model_type``."""

    qkv_bias: bool
    """True if query, key and value projections have a bias."""
    qk_norm: bool
    """True if each head's query and key are normalised."""


QWEN_FAMILIES = {"qwen2": QwenFamily(qkv_bias=True, qk_norm=False), "qwen3": QwenFamily(qkv_bias=False, qk_norm=True)}
"""Families by ``model_type``; that of Qwen2.5 is ``qwen2``."""


@dataclass(frozen=True, slots=True)
class QwenConfig:
    family: QwenFamily
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

    @property
    def query_size(self) -> int:
        """Size of all query heads together."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_size(self) -> int:
        """Size of all key heads together, the same as of all value heads."""
        return self.num_key_value_heads * self.head_dim

    @property
    def matmul_parameters_per_layer(self) -> int:
        """Number of a layer's weights that each token is multiplied with."""
        return self.hidden_size * (2 * self.query_size + 2 * self.key_size + 3 * self.intermediate_size)

    def count_parameters(self) -> int:
        """Return the number of weights; a tied output layer counts once."""
        biases = (self.query_size + 2 * self.key_size) * self.family.qkv_bias
        norms = 2 * self.hidden_size + 2 * self.head_dim * self.family.qk_norm
        tables = (1 if self.tie_word_embeddings else 2) * self.vocab_size * self.hidden_size
        return tables + self.num_hidden_layers * (self.matmul_parameters_per_layer + biases + norms) + self.hidden_size


_NAME_ANOTHER = "name a Hugging Face model's folder, in a run by --model FOLDER"


def padded_vocabulary(config: QwenConfig, tp: int) -> int:
    """Return the vocabulary size padded to equal shares; the added rows are zero and never predicted."""
    return -(-config.vocab_size // tp) * tp


def read_qwen_config(folder: Path) -> QwenConfig:
    """Read a model's shape.  Raises UserError if the folder has no config.json or the model is not a dense Qwen2.5 or
    Qwen3 with plain rotary embeddings."""
    path = folder / CONFIG_FILE
    try:
        read: object = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): {_NAME_ANOTHER}") from error
    except ValueError as error:
        raise UserError(f"{path} holds no JSON ({error}): {_NAME_ANOTHER}") from error
    if not isinstance(read, dict):
        raise UserError(f"{path} holds no JSON object: {_NAME_ANOTHER}")
    raw = cast("dict[str, object]", read)

    def get(name: str, kind: type[_T], default: _T | None = None) -> _T:
        value = default if raw.get(name) is None else raw[name]
        if not isinstance(value, kind):
            raise UserError(f"{path}: {name} is {value!r}, expected {kind.__name__}")
        return value

    family = _family(raw, path)
    plain_values = {"attention_bias": family.qkv_bias, "hidden_act": "silu", "use_sliding_window": False}
    for name, plain in plain_values.items():
        if raw.get(name, plain) != plain:
            raise UserError(f"{path}: {name}={raw[name]!r} is not supported, only {plain!r}")
    theta = _rope_theta(raw, path)
    heads, hidden = get("num_attention_heads", int), get("hidden_size", int)
    return QwenConfig(
        family=family,
        vocab_size=get("vocab_size", int),
        hidden_size=hidden,
        intermediate_size=get("intermediate_size", int),
        num_hidden_layers=get("num_hidden_layers", int),
        num_attention_heads=heads,
        num_key_value_heads=get("num_key_value_heads", int, heads),
        head_dim=get("head_dim", int, hidden // heads),
        rms_norm_eps=get("rms_norm_eps", float, 1e-6),
        rope_theta=theta,
        max_position_embeddings=get("max_position_embeddings", int, 32768),
        tie_word_embeddings=get("tie_word_embeddings", bool, default=False),
    )


def _rope_theta(raw: dict[str, object], path: Path) -> float:
    """Return θ: transformers 5 writes rope_parameters, 4 rope_theta and rope_scaling with rope_type or type."""
    theta = raw.get("rope_theta", 10000.0)
    for key in ("rope_scaling", "rope_parameters"):
        rope = cast("dict[str, object]", raw.get(key) or {})
        if rope.get("rope_type", rope.get("type", "default")) != "default":
            raise UserError(
                f"{path}: rotary embeddings {rope!r} are not supported, only plain ones: take {key} out, and with it "
                "what it adds to the model's context"
            )
        theta = rope.get("rope_theta", theta)
    if raw.get("dual_chunk_attention_config"):
        raise UserError(f"{path}: dual_chunk_attention_config is not supported, only plain attention: take it out")
    if not isinstance(theta, int | float):
        raise UserError(f"{path}: rope_theta is {theta!r}, expected a number")
    return float(theta)


def _family(raw: dict[str, object], path: Path) -> QwenFamily:
    named = raw.get("model_type")
    if raw.get("num_experts") or raw.get("num_local_experts") or str(named).endswith("_moe"):
        raise UserError(
            f"{path}: model_type {named!r} is a mixture of experts, and the learner trains dense "
            "models: set model.path to a dense Qwen2.5 or Qwen3"
        )
    if not isinstance(named, str) or named not in QWEN_FAMILIES:
        raise UserError(
            f"{path}: model_type is {named!r}; the learner trains dense Qwen2.5 and Qwen3 models "
            f"({', '.join(QWEN_FAMILIES)}): set model.path to one of them"
        )
    return QWEN_FAMILIES[named]
