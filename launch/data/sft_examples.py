"""Encodes training sequences as token ids, loss masks and weights: conversations with the model's chat template, a
run's trajectories as they were sampled.

A sequence's weight is its record's ``weight`` (1 by default), times its score if the loss is weighted by rewards:
reward-weighted regression with the reward itself as the weight (Peters and Schaal 2007, "Reinforcement learning by
reward-weighted regression for operational space control").  The loss is Σ weight · −log π ÷ Σ weight, over a batch's
tokens with loss.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np
import orjson
from jinja2 import TemplateError

from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.chat_template import Tokenizer
from launch.data.conversations import Conversation, TrainingDataError, read_conversations
from launch.settings.data import OverlongAction
from learner.data.sequences import join_sequences
from learner.messages import SftBatch
from protocol.errors import UserError
from protocol.run_directory.trajectory_export import (
    EXPORT_INDEX,
    TRAJECTORIES_FOLDER,
    read_export_index,
    read_exported_trajectory,
)
from protocol.trajectory import Int32Array, Uint8Array

_FILES = (".json", ".jsonl", ".parquet")


class SequenceExclusion(StrEnum):
    """Why a sequence is not trained."""

    SCORE = "score"
    """Its score is below the threshold."""
    WEIGHT = "weight"
    """Its weight is 0."""
    TOO_LONG = "too_long"
    NO_LOSS = "no_loss"
    """It has no token with loss, or none after truncation."""


@dataclass(frozen=True, slots=True)
class SequenceSelection:
    """Rules that select sequences and weight them."""

    vocabulary: int
    max_tokens: int
    overlong: OverlongAction
    min_score: float | None
    reward_weighted: bool


@dataclass(frozen=True, slots=True, eq=False)
class SftExample:
    """A sequence: ``token_ids`` [T], ``loss_mask`` [T].  At least one token after the first has loss, and ``weight`` is
    positive."""

    token_ids: Int32Array
    loss_mask: Uint8Array
    weight: float
    location: str

    @property
    def trained_tokens(self) -> int:
        return int(self.loss_mask[1:].sum())


@dataclass(slots=True)
class SftDataset:
    examples: list[SftExample] = field(default_factory=list[SftExample])
    exclusions: Counter[SequenceExclusion] = field(default_factory=Counter[SequenceExclusion])
    truncated: int = 0

    def digest(self) -> str:
        """Return a digest of all ids, masks and weights in their order."""
        state = hashlib.sha256()
        for example in self.examples:
            state.update(orjson.dumps([len(example.token_ids), example.weight]))
            state.update(example.token_ids.tobytes() + example.loss_mask.tobytes())
        return state.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """A conversation or a trajectory."""

    location: str
    score: float | None
    weight: float
    content: Conversation | tuple[tuple[Int32Array, Uint8Array], ...]


def build_sft_batch(batch: Sequence[SftExample], lr: float) -> SftBatch:
    return SftBatch(token_sequences(batch), lr, [example.weight for example in batch])


def token_sequences(batch: Iterable[SftExample]) -> list[tuple[Int32Array, Uint8Array]]:
    return [(example.token_ids, example.loss_mask) for example in batch]


def read_examples(sources: Sequence[Path], tokenizer: Tokenizer, choice: SequenceSelection) -> SftDataset:
    """Read the sequences of ``sources`` in order.  Raises TrainingDataError for a record that cannot be trained,
    UserError if nothing is left."""
    encoder, made = ConversationEncoder(tokenizer), SftDataset()
    too_long: list[tuple[str, int]] = []
    for source in _sources(sources):
        weight = _weight(source, choice)
        if isinstance(weight, SequenceExclusion):
            made.exclusions[weight] += 1
            continue
        for ids, mask in _sequences(source, encoder):
            _check_vocabulary(ids, source.location, choice)
            if len(ids) > choice.max_tokens:
                too_long.append((source.location, len(ids)))
                made.truncated += choice.overlong is OverlongAction.TRUNCATE
            kept = _fit_length(SftExample(ids, mask, weight, source.location), choice)
            if isinstance(kept, SequenceExclusion):
                made.exclusions[kept] += 1
            else:
                made.examples.append(kept)
    if too_long and choice.overlong is OverlongAction.ERROR:
        where, length = too_long[0]
        raise TrainingDataError(
            f"{where} has {length} tokens, and {len(too_long)} sequences have more than {choice.max_tokens}: "
            "overlong = drop leaves them out, truncate cuts their ends off; or raise learner.micro_batch_tokens or "
            "learner.cp, as far as the model's positions reach"
        )
    if not made.examples:
        reasons = ", ".join(f"{count} for {why}" for why, count in made.exclusions.items()) or "they hold no record"
        raise UserError(f"{', '.join(map(str, sources))}: nothing is left to train ({reasons})")
    _check_weights(made.examples)
    return made


def check_sources(paths: Iterable[Path]) -> None:
    """Raise TrainingDataError or UserError for data that no model could be trained on."""
    for _ in _sources(paths):
        pass


def _sources(paths: Iterable[Path]) -> Iterator[_Source]:
    for path in paths:
        if path.is_dir():
            yield from _trajectories(path)
        elif path.suffix in _FILES:
            for each in read_conversations(path):
                yield _Source(each.location, each.score, each.weight, each)
        else:
            raise UserError(f"{path} is {'no' if path.exists() else 'not there, and no'} {' or '.join(_FILES)} file")


def _trajectories(run_dir: Path) -> Iterator[_Source]:
    """Yield the trajectories that a run exported."""
    if not (run_dir / TRAJECTORIES_FOLDER / EXPORT_INDEX).is_file():
        raise UserError(
            f"{run_dir} is not a run: it has no {TRAJECTORIES_FOLDER}/{EXPORT_INDEX}. Name a run by its "
            "directory or id, or conversation files "
            f"one by one ({run_dir}/*.jsonl)"
        )
    for entry in read_export_index(run_dir):
        where = f"{run_dir}: trajectory {entry.trajectory}"
        segments = read_exported_trajectory(run_dir, entry).segments
        yield _Source(where, entry.reward, 1.0, tuple(join_sequences(segments)))


def _weight(source: _Source, choice: SequenceSelection) -> float | SequenceExclusion:
    score, weight = source.score, source.weight
    if score is None and (choice.min_score is not None or choice.reward_weighted):
        key = "min_score" if choice.min_score is not None else "reward_weighted"
        raise TrainingDataError(
            f"{source.location} has no 'score' or 'reward', and {key} needs one: add it, or leave that out"
        )
    if score is not None and choice.min_score is not None and score < choice.min_score:
        return SequenceExclusion.SCORE
    if score is not None and choice.reward_weighted:
        if score < 0:
            raise TrainingDataError(
                f"{source.location} has the score {score:g}, and no weight is below 0: min_score = 0 leaves such out"
            )
        weight *= score
    return weight or SequenceExclusion.WEIGHT


def _sequences(source: _Source, encoder: ConversationEncoder) -> Sequence[tuple[Int32Array, Uint8Array]]:
    return (encoder.encode(source.content),) if isinstance(source.content, Conversation) else source.content


def _check_vocabulary(ids: Int32Array, where: str, choice: SequenceSelection) -> None:
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < choice.vocabulary:
        wrong = ids[(ids < 0) | (ids >= choice.vocabulary)][0]
        raise TrainingDataError(
            f"{where} has token {wrong}, and the model's vocabulary has {choice.vocabulary}: it was sampled from "
            "another model, or the tokenizer is another model's"
        )


def _check_weights(found: Iterable[SftExample]) -> None:
    """Raise TrainingDataError if a sum of weights is infinite: the loss, divided by it, would silently train
    nothing."""
    total = 0.0
    for example in found:
        total += example.weight * example.trained_tokens
        if total == math.inf:
            raise TrainingDataError(
                f"{example.location} has the weight {example.weight:g}, with which the weights of all tokens with loss "
                "sum to infinity, and the loss is divided by their sum: divide all weights by one number"
            )


def _fit_length(example: SftExample, choice: SequenceSelection) -> SftExample | SequenceExclusion:
    if len(example.token_ids) > choice.max_tokens:
        if choice.overlong is OverlongAction.DROP:
            return SequenceExclusion.TOO_LONG
        most = choice.max_tokens
        example = SftExample(example.token_ids[:most], example.loss_mask[:most], example.weight, example.location)
    return example if example.trained_tokens else SequenceExclusion.NO_LOSS


class ConversationEncoder:
    """Encodes conversations as episodes would hold them: each reply as if it had just been sampled, and the messages
    between as the template adds them.  So a template that rewrites history, as Qwen3's does with earlier thoughts,
    removes no token with loss."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._formats: dict[bytes, ChatFormat] = {}
        """Tools as JSON → format."""

    def encode(self, conversation: Conversation) -> tuple[Int32Array, Uint8Array]:
        """Encode a conversation up to the last message with loss.  Raises TrainingDataError if the template fails."""
        try:
            return self._encode(conversation)
        except (UserError, TemplateError) as error:
            raise TrainingDataError(f"{conversation.location}: {error}") from error

    def _encode(self, conversation: Conversation) -> tuple[Int32Array, Uint8Array]:
        chat = self._format(conversation.tools)
        parts: list[tuple[list[int], bool]] = []
        pending: list[ChatMessage] = []
        for index, message in enumerate(conversation.messages[: max(conversation.trained_messages) + 1]):
            if message["role"] != "assistant":
                pending.append(message)
                continue
            prompt = chat.encode_next(parts[-1][0][-1], pending) if parts else chat.encode_first_prompt(pending)
            parts += [(prompt, False), (chat.encode_reply(message), index in conversation.trained_messages)]
            pending = []
        ids = np.concatenate([np.array(part, np.int32) for part, _ in parts])
        return ids, np.concatenate([np.full(len(part), loss, np.uint8) for part, loss in parts])

    def _format(self, tools: Sequence[object]) -> ChatFormat:
        key = orjson.dumps(tools)
        if key not in self._formats:
            self._formats[key] = ChatFormat(self._tokenizer, tools=tools or None)
        return self._formats[key]
