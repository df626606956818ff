"""What can be known to be wrong before a process of the learner is started, and the sequences that it gets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from actors.agents.chat import load_tokenizer
from launch.config import SftConfig
from launch.doctor.host import require_host
from launch.doctor.wants import wants_of_sft
from launch.preflight import check_layout
from launch.prepare import check_model
from launch.sft.examples import Choice, Examples, read_examples
from learner.qwen import read_config
from protocol.errors import UserError


@dataclass(frozen=True, slots=True)
class Prepared:
    model: Path
    examples: Examples
    held_out: Examples


def prepare(config: SftConfig) -> Prepared:
    """Check everything and read the data.  Raises UserError."""
    from learner.convert import check_folder

    if config.sft.model is None:
        raise UserError("--model is missing: name a Hugging Face folder of a dense Qwen2.5 or Qwen3")
    if not config.sft.data:
        raise UserError("--data is missing: name conversations (.jsonl, .json) or run directories")
    model = check_model(config.sft.model).absolute()
    check_layout(model, config.learner)
    check_folder(model, read_config(model))
    require_host(wants_of_sft(config))
    tokenizer = load_tokenizer(str(model))
    chosen = choice(config, model)
    held_out = read_examples(config.sft.eval_data, tokenizer, chosen) if config.sft.eval_data else Examples()
    return Prepared(model, read_examples(config.sft.data, tokenizer, chosen), held_out)


def choice(config: SftConfig, model: Path) -> Choice:
    shape = read_config(model)
    return Choice(
        vocabulary=shape.vocab_size,
        max_tokens=min(config.most_tokens, shape.max_position_embeddings),
        too_long=config.sft.too_long,
        min_score=config.sft.min_score,
        reward_weighted=config.sft.reward_weighted,
    )
