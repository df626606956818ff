"""A wrong model or setting is refused in a sentence, before anything starts."""

import json
import pickle
import subprocess
import sys

import pytest
from pydantic import ValidationError

from learner.models.qwen import read_qwen_config
from learner.rank import LearnerNotReadyError, LearnerRank
from learner.settings import LORA_TARGETS, Dtype, LoraSettings, TrainerSettings
from protocol.errors import UserError
from tests.support.runs.learner_specs import make_spec

QWEN = {
    "model_type": "qwen3",
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"publish_adapters": True}, "lora.rank = 16"),
    ],
)
def test_invalid_settings_are_refused(changes, word):
    with pytest.raises(UserError, match=word):
        make_spec(model_path="model", **changes)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"sequence_parallel": True}, "set learner.tp = 2"),
        ({"ranks": 3, "tp": 2}, "set learner.ranks = 4"),
        ({"dtype": "float64", "device": "cuda"}, "set learner.dtype = 'bfloat16'"),
    ],
)
def test_invalid_parallel_layouts_are_refused(changes, word):
    with pytest.raises(ValidationError, match=word):
        TrainerSettings(**changes)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"rank": -1}, "rank"),
        ({"alpha": 0.0}, "alpha"),
        ({"targets": ()}, "all-linear"),
        ({"targets": ("q_proj", "qproj")}, "did you mean 'q_proj'"),
        ({"targets": ("lm_head",)}, "no layer has .there are q_proj"),
    ],
)
def test_invalid_adapters_are_refused(arguments, word):
    with pytest.raises(ValidationError, match=word):
        LoraSettings(**{"rank": 8} | arguments)


def test_adapters_are_the_same_however_they_are_named():
    """A checkpoint of the one is a checkpoint of the other."""
    assert (
        LoraSettings(rank=8, targets=("all-linear", "q_proj")).projections
        == LoraSettings(rank=8).projections
        == LoraSettings(rank=8, targets=LORA_TARGETS[::-1]).projections
        == LORA_TARGETS
    )
    assert LoraSettings(rank=8, alpha=4).scale == 0.5


def test_settings_travel_to_the_ranks():
    made = make_spec(model_path="model", dtype="float32")
    assert made.trainer.dtype is Dtype.FLOAT32
    copy = pickle.loads(pickle.dumps(LearnerRank(made, 1, 2, "127.0.0.1", 5)))  # noqa: S301 - our own bytes
    assert copy.spec == made


@pytest.mark.parametrize(
    "rope",
    [{"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, {"rope_theta": 5e5}, {"rope_theta": 500000}],
)
def test_the_rotary_base_is_read_from_either_config_format(tmp_path, rope):
    (tmp_path / "config.json").write_text(json.dumps(QWEN | rope))
    found = read_qwen_config(tmp_path)
    assert found.rope_theta == 5e5
    assert found.count_parameters() == 100 * 32 + 2 * (32 * 192 + 32 + 3 * 32 * 64 + 64) + 32


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model_type": "llama"}, "llama"),
        ({"attention_bias": True}, "attention_bias"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window"),
        ({"model_type": "qwen3_moe", "num_experts": 128}, "mixture of experts.*dense Qwen"),
        ({"num_local_experts": 8}, "mixture of experts"),
        ({"vocab_size": "100"}, "vocab_size"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "take rope_scaling out"),
        ({"rope_scaling": {"type": "linear"}, "rope_parameters": {"rope_type": "default"}}, "linear"),
        ({"dual_chunk_attention_config": {"chunk_size": 262144}}, "dual_chunk_attention_config"),
    ],
)
def test_models_that_would_be_trained_incorrectly_are_refused(tmp_path, changes, word):
    (tmp_path / "config.json").write_text(json.dumps(QWEN | changes))
    with pytest.raises(UserError, match=word):
        read_qwen_config(tmp_path)


def test_qwen2_has_biases_and_no_head_norms(tmp_path):
    """And need not say its head size."""
    config = {name: value for name, value in QWEN.items() if name != "head_dim"} | {"model_type": "qwen2"}
    (tmp_path / "config.json").write_text(json.dumps(config | {"head_dim": None}))
    found = read_qwen_config(tmp_path)
    assert (found.head_dim, found.family.qkv_bias, found.family.qk_norm) == (8, True, False)
    layer = 32 * (32 + 16 + 16 + 32) + (32 + 16 + 16) + 3 * 32 * 64 + 2 * 32
    assert found.count_parameters() == 100 * 32 + 2 * layer + 32


def test_a_folder_without_a_model_is_refused_and_names_the_option(tmp_path):
    with pytest.raises(UserError, match=r"cannot be read.*--model FOLDER"):
        read_qwen_config(tmp_path)


def test_a_rank_must_be_set_up():
    with pytest.raises(LearnerNotReadyError, match="setup"):
        LearnerRank(make_spec(model_path="model")).weights_digest()


def test_importing_the_public_modules_loads_no_heavy_package():
    """The driver makes settings and batches; only ranks may pay for torch and megatron."""
    code = (
        "import sys, learner.rank, learner.messages, learner.settings, learner.spec;"
        "print([m for m in ('torch', 'megatron', 'ray', 'transformers') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
