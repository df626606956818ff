"""Computes the memory of a learner rank and of an engine from the model's shape and the configuration.  Pure.

For the learner it is the fullest rank.  Parameters, gradients and Adam's state follow exactly from the layout,
activations from the tensors that each layer saves (:mod:`learner.models.layers`, :mod:`learner.models.attention`).
CUDA, NCCL, the allocator and the Python process itself are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from actors.engines.settings import EngineSettings
from launch.config import RunConfig
from launch.settings.data import ModelSettings
from learner.models.qwen import QWEN_FAMILIES, QwenConfig, padded_vocabulary, read_qwen_config
from learner.settings import LORA_TARGETS, Dtype, LoraSettings, Offload, Recompute, TrainerSettings
from learner.spec import DEFAULT_LOGPROB_CHUNK_BYTES
from protocol.events import JsonValue

_FLOAT32 = 4
_LOGIT_COPIES = 2.5
"""Number of logit chunks alive in the backward pass: probabilities, their gradient, and that in the weights' dtype."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    name: str
    bytes: int
    why: str
    """Short explanation."""


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Memory of one process on one device."""

    process: str
    count: int
    """Number of such processes, each on a device of its own."""
    parts: tuple[MemoryPart, ...]
    peak_bytes: int
    """Maximum at one time: not all parts are alive together."""

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "process": self.process,
            "count": self.count,
            "peak_bytes": self.peak_bytes,
            "parts": {part.name: part.bytes for part in self.parts},
        }


def read_model_shape(model: ModelSettings, positions: int) -> QwenConfig:
    """Return the shape of the model folder, or of the demo model.  Raises UserError."""
    if model.path is not None:
        return read_qwen_config(model.path)
    return QwenConfig(
        family=QWEN_FAMILIES["qwen3"],
        vocab_size=model.vocab_tokens,
        hidden_size=model.hidden,
        intermediate_size=model.intermediate,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.heads,
        head_dim=model.head_dim,
        rms_norm_eps=1e-6,
        rope_theta=model.rope_theta,
        max_position_embeddings=positions,
        tie_word_embeddings=True,
    )


def learner_memory(shape: QwenConfig, config: RunConfig) -> ProcessMemory:
    """Return the memory of the fullest learner rank."""
    learner, lora = config.learner, config.lora
    width = _width(learner.dtype)
    weights = _weights(shape, learner)
    trained = _adapters(shape, lora, learner) if lora.enabled else weights
    frozen = weights if lora.enabled else 0
    replicas = learner.ranks // (learner.tp * learner.pp) if learner.distributed_optimizer else 1
    state_each = 2 * _FLOAT32 + (_FLOAT32 if learner.dtype is Dtype.BFLOAT16 else 0)
    gradient_each = 8 if learner.dtype is Dtype.FLOAT64 else _FLOAT32
    parts = (
        MemoryPart("weights", (frozen + trained) * width, f"{frozen + trained:,} parameters in {learner.dtype}"),
        MemoryPart("gradients", trained * gradient_each, f"{trained:,} trained, in float32"),
        MemoryPart(
            "optimizer",
            trained * state_each // replicas,
            f"Adam's moments{_main_weights(learner)}{f', over {replicas} ranks' if replicas > 1 else ''}",
        ),
        MemoryPart("activations", _activations(shape, learner, width), _explain_activations(learner)),
        MemoryPart("logits", _logits(shape, learner), "chunks of float32, never the whole"),
    )
    return ProcessMemory("learner rank", learner.ranks, parts, _peak_bytes(parts, learner.offload))


def _width(dtype: Dtype | str) -> int:
    return {"float64": 8, "float32": 4, "bfloat16": 2}[str(dtype)]


def _main_weights(learner: TrainerSettings) -> str:
    return " and main weights" if learner.dtype is Dtype.BFLOAT16 else ""


def _weights(shape: QwenConfig, learner: TrainerSettings) -> int:
    """Return the parameters of the fullest rank, in the first or last stage, which have an embedding table each."""
    tables = 2 if learner.pp == 1 and not shape.tie_word_embeddings else 1
    table = padded_vocabulary(shape, learner.tp) * shape.hidden_size // learner.tp
    layers = -(-shape.num_hidden_layers // learner.pp)
    biases = (shape.query_size + 2 * shape.key_size) * shape.family.qkv_bias
    norms = 2 * shape.hidden_size + 2 * shape.head_dim * shape.family.qk_norm
    return (
        tables * table
        + layers * ((shape.matmul_parameters_per_layer + biases) // learner.tp + norms)
        + shape.hidden_size
    )


def _adapters(shape: QwenConfig, lora: LoraSettings, learner: TrainerSettings) -> int:
    """Return the adapter parameters of a rank: A [rank, columns] is replicated for column-parallel layers and B [rows,
    rank] for row-parallel ones; the other is sharded."""
    hidden, query, key, inner = shape.hidden_size, shape.query_size, shape.key_size, shape.intermediate_size
    sizes = {"q_proj": query, "k_proj": key, "v_proj": key, "gate_proj": inner, "up_proj": inner}
    each = sum(lora.rank * (hidden + rows // learner.tp) for name, rows in sizes.items() if name in lora.projections)
    rows = {"o_proj": query, "down_proj": inner}
    each += sum(
        lora.rank * (hidden + columns // learner.tp) for name, columns in rows.items() if name in lora.projections
    )
    assert set(sizes) | set(rows) == set(LORA_TARGETS)  # noqa: S101  every projection there is
    return -(-shape.num_hidden_layers // learner.pp) * each


def _activations(shape: QwenConfig, learner: TrainerSettings, width: int) -> int:
    """Return the activation bytes of one pass: for each layer the inputs of norms and matmuls, attention's inputs and
    output, and the MLP's intermediates; plus, for one layer at a time, recomputed tensors and gradients."""
    share = learner.tp if learner.sequence_parallel else 1
    hidden, tokens = shape.hidden_size / share, learner.micro_batch_tokens
    heads, inner = (shape.query_size + shape.key_size) / learner.tp, shape.intermediate_size / learner.tp
    attention = heads * (3 if shape.family.qk_norm else 2)
    gradients = 2 * inner + hidden
    kept, recomputed = {
        Recompute.NONE: (4 * hidden + attention + 4 * inner, 0.0),
        Recompute.SELECTIVE: (4 * hidden + attention, heads + 4 * inner + gradients),
        Recompute.FULL: (hidden, 3 * hidden + attention + 4 * inner + gradients),
    }[learner.recompute]
    layers = -(-shape.num_hidden_layers // learner.pp)
    in_flight = learner.pp  # micro-batches in flight at the first pipeline stage
    return int(tokens * width * (in_flight * layers * kept + recomputed + 2 * hidden))


def _explain_activations(learner: TrainerSettings) -> str:
    return f"{learner.micro_batch_tokens:,} tokens per pass, recompute = {learner.recompute}"


def _logits(shape: QwenConfig, learner: TrainerSettings) -> int:
    row = _FLOAT32 * padded_vocabulary(shape, learner.tp) // learner.tp
    chunk = min(learner.micro_batch_tokens * row, max(DEFAULT_LOGPROB_CHUNK_BYTES, row))
    return int(_LOGIT_COPIES * chunk)


def _peak_bytes(parts: Sequence[MemoryPart], offload: Offload) -> int:
    """Return the larger of a pass and an update; with ``offload`` Adam's state is absent during a pass."""
    size = {part.name: part.bytes for part in parts}
    always = size["weights"] + size["gradients"]
    passing = size["activations"] + size["logits"] + (0 if offload is not Offload.NONE else size["optimizer"])
    return always + max(passing, size["optimizer"])


def kv_bytes_per_token(shape: QwenConfig, dtype: str, tp: int) -> int:
    """Return the KV bytes of one token on each of ``tp`` GPUs; heads that cannot be split are replicated."""
    heads = max(1, -(-shape.num_key_value_heads // tp))
    return 2 * shape.num_hidden_layers * heads * shape.head_dim * _width(dtype)


def engine_memory(shape: QwenConfig, config: RunConfig, device_bytes: int | None) -> ProcessMemory:
    """Return the memory of one GPU of an engine.

    The engine takes ``engine.mem_fraction_static`` of the GPU; its KV cache gets the rest of that after the weights, up
    to ``engine.max_total_tokens``."""
    engine = config.engine
    weights = engine_weights(shape.count_parameters(), engine, engine.tp)
    each = kv_bytes_per_token(shape, engine.dtype, engine.tp)
    wanted = engine.max_total_tokens * each
    cuda = engine.device == "cuda" and device_bytes is not None
    room = engine_room(weights, engine, device_bytes) if cuda and device_bytes else wanted
    kv = min(wanted, room)
    why = f"{engine.max_total_tokens:,} tokens of {each:,} bytes"
    if kv < wanted:
        why = f"{kv // each:,} tokens of {each:,} bytes, and engine.max_total_tokens = {engine.max_total_tokens:,}"
    parts = [weights, MemoryPart("kv_cache", kv, why)]
    if cuda and device_bytes:
        parts.append(engine_rest(engine, device_bytes))
    count = engine.count * engine.tp
    return ProcessMemory("engine GPU" if cuda else "engine", count, tuple(parts), sum(part.bytes for part in parts))


def engine_weights(parameters: int, engine: EngineSettings, tp: int) -> MemoryPart:
    """Return the weights of an engine on each of its ``tp`` GPUs."""
    gpus = f", over {tp} GPUs" if tp > 1 else ""
    return MemoryPart(
        "weights", parameters * engine.item_bytes // tp, f"{parameters:,} parameters in {engine.dtype}{gpus}"
    )


def engine_room(weights: MemoryPart, engine: EngineSettings, device_bytes: int) -> int:
    """Return the bytes of a GPU that an engine has for its KV cache."""
    return max(0, int(engine.mem_fraction_static * device_bytes) - weights.bytes)


def engine_rest(engine: EngineSettings, device_bytes: int) -> MemoryPart:
    """Return what an engine leaves of a GPU for its work."""
    share = 1 - engine.mem_fraction_static
    return MemoryPart(
        "engine", int(share * device_bytes), f"activations and CUDA graphs: 1 − mem_fraction_static = {share:g}"
    )
