"""Checks everything and reads the sequences before a learner process starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from actors.tokens.chat_format import load_tokenizer
from launch.config import SftConfig
from launch.data.preparation import require_model_files
from launch.data.sft_examples import SequenceSelection, SftDataset, read_examples
from launch.doctor.host_checks import require_host
from launch.doctor.requirements import sft_host_requirements
from launch.run.preflight import check_parallel_layout
from learner.models.qwen import read_qwen_config
from protocol.errors import UserError


@dataclass(frozen=True, slots=True)
class SftInputs:
    model: Path
    training: SftDataset
    held_out: SftDataset


def prepare_sft(config: SftConfig) -> SftInputs:
    """Check everything and read the data.  Raises UserError."""
    from learner.models.weight_conversion import check_model_folder

    if config.sft.model is None:
        raise UserError("--model is missing: name a Hugging Face folder of a dense Qwen2.5 or Qwen3")
    if not config.sft.data:
        raise UserError("--data is missing: name conversations (.jsonl, .json, .parquet) or run directories")
    model = require_model_files(config.sft.model).absolute()
    check_parallel_layout(model, config.learner)
    check_model_folder(model, read_qwen_config(model))
    require_host(sft_host_requirements(config))
    tokenizer = load_tokenizer(str(model))
    chosen = sequence_selection(config, model)
    held_out = read_examples(config.sft.eval_data, tokenizer, chosen) if config.sft.eval_data else SftDataset()
    return SftInputs(model, read_examples(config.sft.data, tokenizer, chosen), held_out)


def sequence_selection(config: SftConfig, model: Path) -> SequenceSelection:
    shape = read_qwen_config(model)
    return SequenceSelection(
        vocabulary=shape.vocab_size,
        max_tokens=min(config.max_sequence_tokens, shape.max_position_embeddings),
        overlong=config.sft.overlong,
        min_score=config.sft.min_score,
        reward_weighted=config.sft.reward_weighted,
    )
