"""Tokenizers with chat templates of each family's shape: how its turns end, and how calls, results and ids are written.

The templates are small ones of our own, in tests/support/templates/families."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from actors.tokens import chat_template

FOLDER = Path(__file__).parents[1] / "templates" / "families"
FAMILY_TEMPLATES = {each.stem: each.read_text() for each in sorted(FOLDER.glob("*.jinja"))}
_CONTROL = re.compile(
    r"<\|[a-z_]+\|>|<｜[^｜>]+｜>|\[/?[A-Z_]+\]|\[gMASK\]|<sop>|</?(?:s|think|tool_call|arg_key|arg_value)>"
)
_ENDS = ("<|return|>", "<|endoftext|>", "</s>", "<｜end▁of▁sentence｜>", "<|eot_id|>", "<|im_end|>")
_ROLES = {*(f"<|{role}|>" for role in ("system", "user", "assistant", "im_user", "im_assistant")), "<|endoftext|>"}


def make_family_tokenizer(template: str) -> chat_template.Tokenizer:
    """Return a tokenizer of bytes whose control tokens are those that ``template`` writes, and the roles'."""
    control = {*_CONTROL.findall(template), *_ROLES}
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([""], trainers.BpeTrainer(vocab_size=256, initial_alphabet=letters, show_progress=False))
    made.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in sorted(control)])
    end = next(each for each in _ENDS if each in control)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=end)
    tokenizer.chat_template = template
    return cast("chat_template.Tokenizer", tokenizer)
