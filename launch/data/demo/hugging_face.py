"""Wraps tokenizers and transformers, which are only partly typed."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# (their untyped parts stay in this file)

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar


def train_bpe(
    texts: Sequence[str], *, pieces: str, control: Sequence[str], marks: Sequence[str], max_tokens: int
) -> Tokenizer:
    """Train a byte-level BPE tokenizer; ``control`` gets the first ids, ``marks`` the last."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pieces), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=max_tokens,
        special_tokens=list(control),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in marks])
    return bpe


def build_fast_tokenizer(
    bpe: Tokenizer, reserved: Sequence[str], *, template: str, eos: str, pad: str
) -> PreTrainedTokenizerFast:
    """Return a tokenizer that AutoTokenizer can load, with the template and ``reserved`` control tokens."""
    bpe.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in reserved])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=eos, pad_token=pad, clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = template
    return tokenizer


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> int:
    """Write the tokenizer's files; return the number of its ids."""
    tokenizer.save_pretrained(str(folder))
    return len(tokenizer)


def save_model(folder: Path, config: Qwen3Config, generation: GenerationConfig, seed: int) -> int:
    """Write a model with random weights; return its parameter count.  torch's random state is unchanged."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.generation_config = generation
    disable_progress_bar()
    model.save_pretrained(str(folder))
    return sum(parameter.numel() for parameter in model.parameters())
