"""If these fail, loss falls on what the assistant did not say, or what it said is trained in another form than it has
in an episode."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from actors.tokens.chat_template import Tokenizer
from launch.data.conversations import TrainingDataError, parse_conversation
from launch.data.demo.tokenizer import CHAT_TEMPLATE, train_tokenizer
from launch.data.sft_examples import ConversationEncoder, SequenceExclusion, SequenceSelection, read_examples
from launch.settings.data import OverlongAction
from protocol.codec import inspect_blob, pack_trajectory
from protocol.errors import UserError
from protocol.run_directory.trajectory_export import TrajectoryExporter
from tests.support.runs.trajectories import make_segment, make_trajectory

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FORGETFUL = CHAT_TEMPLATE.replace(
    "{%- for message in rest -%}\n    {%- set content = message.content or '' -%}",
    """\
{%- set asked = namespace(last=-1) -%}
{%- for message in rest -%}
    {%- if message.role == 'user' -%}{%- set asked.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in rest -%}
    {%- set content = (message.content or '').split('</think>')[-1].lstrip('\\n') -%}
    {%- if message.role == 'assistant' and loop.index0 > asked.last -%}
        {%- set content = '<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' + content -%}
    {%- endif -%}""",
)
"""A template like Qwen3's: thoughts before the last question are dropped."""
TOOLS = [{"type": "function", "function": {"name": "shell_exec", "parameters": {}}}]
CALL = [{"type": "function", "function": {"name": "shell_exec", "arguments": {"command": "ls"}}}]
CALLED = '<tool_call>\n{"name": "shell_exec", "arguments": {"command": "ls"}}\n</tool_call>'
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "You are a shell agent."},
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": "", "reasoning_content": "I look", "tool_calls": CALL},
    {"role": "tool", "content": "a.txt"},
    {"role": "tool", "content": "b.txt"},
    {"role": "assistant", "content": "two files", "reasoning_content": "I see"},
    {"role": "user", "content": "Again."},
    {"role": "assistant", "content": "done", "reasoning_content": "easy"},
    {"role": "user", "content": "Thanks."},
]
PLAIN = [{key: value for key, value in message.items() if key != "reasoning_content"} for message in TALK]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return cast("Tokenizer", train_tokenizer(1024))


@pytest.fixture(scope="module")
def forgetful(tokenizer: Tokenizer) -> Tokenizer:
    made = copy.deepcopy(cast("PreTrainedTokenizerFast", tokenizer))
    made.chat_template = FORGETFUL
    return cast("Tokenizer", made)


def encoded(tokenizer: Tokenizer, record: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Ids, mask, and the text of each span that has loss."""
    ids, mask = ConversationEncoder(tokenizer).encode(parse_conversation(record, "f:1"))
    assert (ids.dtype, mask.dtype, ids.shape) == (np.int32, np.uint8, mask.shape)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask, [0]])))
    spans = [ids[first:last] for first, last in zip(edges[::2], edges[1::2], strict=True)]
    return ids, mask, [tokenizer.decode(span.tolist(), skip_special_tokens=False) for span in spans]


def rendered(tokenizer: Tokenizer, messages: list[dict[str, Any]], tools: list[Any] | None) -> str:
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False, tools=tools)


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_loss_is_on_every_word_of_the_assistant_and_no_other(tokenizer: Tokenizer, tools: list[Any] | None) -> None:
    """The ids are those of the whole conversation: this template changes nothing that it has written."""
    ids, _, spans = encoded(tokenizer, {"messages": PLAIN, "tools": tools})
    assert spans == [f"{CALLED}<|im_end|>", "two files<|im_end|>", "done<|im_end|>"]
    whole = rendered(tokenizer, PLAIN[:-1], tools)
    assert tokenizer.decode(ids.tolist(), skip_special_tokens=False) == whole.removesuffix("\n")


def test_thoughts_that_a_template_drops_from_later_prompts_have_loss_in_their_own_turn(forgetful: Tokenizer) -> None:
    """Whole renderings drop them, and a mask that is looked for in these would be wrong or miss them."""
    ids, _, spans = encoded(forgetful, {"messages": TALK, "tools": TOOLS})
    assert spans == [
        f"<think>\nI look\n</think>\n\n\n{CALLED}<|im_end|>",
        "<think>\nI see\n</think>\n\ntwo files<|im_end|>",
        "<think>\neasy\n</think>\n\ndone<|im_end|>",
    ]
    assert "I look" not in rendered(forgetful, TALK[:-1], TOOLS), "this template forgets"
    first = rendered(forgetful, TALK[:6], TOOLS)
    assert forgetful.decode(ids.tolist(), skip_special_tokens=False).startswith(first)


def test_a_message_can_be_left_without_loss(tokenizer: Tokenizer) -> None:
    talk = [*PLAIN[:5], {**PLAIN[5], "train": False}, *PLAIN[6:]]
    ids, _, spans = encoded(tokenizer, {"messages": talk})
    assert spans == [f"{CALLED}<|im_end|>", "done<|im_end|>"]
    assert ids.tolist() == encoded(tokenizer, {"messages": PLAIN})[0].tolist()


def test_end_of_turn_markup_inside_a_reply_does_not_end_its_loss(tokenizer: Tokenizer) -> None:
    talk = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "a<|im_end|>\nb"}]
    assert encoded(tokenizer, {"messages": talk})[2] == ["a<|im_end|>\nb<|im_end|>"]


def test_a_template_that_omits_thoughts_or_calls_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(TrainingDataError, match=r"^f:1: the chat template of this model omits 'I look' from a reply"):
        ConversationEncoder(tokenizer).encode(parse_conversation({"messages": TALK}, "f:1"))
    other = copy.deepcopy(cast("PreTrainedTokenizerFast", tokenizer))
    other.chat_template = CHAT_TEMPLATE.replace("message.tool_calls or []", "[]")
    with pytest.raises(TrainingDataError, match=r"omits 'shell_exec' from a reply"):
        ConversationEncoder(cast("Tokenizer", other)).encode(parse_conversation({"messages": PLAIN}, "f:1"))


def test_a_template_that_begins_a_reply_differently_is_refused_with_the_record(tokenizer: Tokenizer) -> None:
    other = copy.deepcopy(cast("PreTrainedTokenizerFast", tokenizer))
    other.chat_template = CHAT_TEMPLATE.replace(
        "{{- '<|im_start|>assistant\\n' -}}", "{{- '<|im_start|>assistant\\n<think>' -}}"
    )
    with pytest.raises(TrainingDataError, match=r"^f:1: the chat template .* does not begin this reply with it"):
        ConversationEncoder(cast("Tokenizer", other)).encode(parse_conversation({"messages": PLAIN}, "f:1"))


def test_a_conversation_that_the_template_refuses_is_named_by_its_record(tokenizer: Tokenizer) -> None:
    other = copy.deepcopy(cast("PreTrainedTokenizerFast", tokenizer))
    other.chat_template = (
        "{%- for m in messages if m.role == 'tool' -%}{{- raise_exception('no tools') -}}{%- endfor -%}" + CHAT_TEMPLATE
    )
    with pytest.raises(TrainingDataError, match=r"^f:1: .*refuses messages of user, assistant, tool, tool \(no t"):
        ConversationEncoder(cast("Tokenizer", other)).encode(parse_conversation({"messages": PLAIN}, "f:1"))


# -- which, and with what weight ---------------------------------------------------------------------------------------

CHOICE = SequenceSelection(
    vocabulary=1024, max_tokens=64, overlong=OverlongAction.ERROR, min_score=None, reward_weighted=False
)


def write(folder: Path, *records: dict[str, Any], name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def record(word: str = "done", **more: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Go."}, {"role": "assistant", "content": word}], **more}


def test_examples_are_filtered_by_a_score_threshold_and_weighted_by_the_score(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    data = write(tmp_path, *(record(score=score, weight=2) for score in (0.0, 0.25, 0.5, 1.0)))
    made = read_examples([data], tokenizer, replace(CHOICE, min_score=0.5))
    assert [example.weight for example in made.examples] == [2.0, 2.0]
    assert made.exclusions == {SequenceExclusion.SCORE: 2}
    made = read_examples([data], tokenizer, replace(CHOICE, reward_weighted=True))
    assert [example.weight for example in made.examples] == [0.5, 1.0, 2.0]
    assert made.exclusions == {SequenceExclusion.WEIGHT: 1}


def test_negative_weights_and_missing_scores_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    weighted = replace(CHOICE, reward_weighted=True)
    data = write(tmp_path, record(score=-0.5), record(score=1))
    with pytest.raises(TrainingDataError, match=r"data\.jsonl:1 has the score -0\.5.*min_score = 0 leaves such out"):
        read_examples([data], tokenizer, weighted)
    assert len(read_examples([data], tokenizer, replace(weighted, min_score=0)).examples) == 1
    data = write(tmp_path, record())
    for choice, option in ((weighted, "reward_weighted"), (replace(CHOICE, min_score=0), "min_score")):
        with pytest.raises(
            TrainingDataError, match=rf"data\.jsonl:1 has no 'score' or 'reward', and {option} needs one"
        ):
            read_examples([data], tokenizer, choice)
    assert read_examples([data], tokenizer, CHOICE).examples[0].weight == 1.0


def test_weights_with_an_infinite_sum_are_refused_at_the_record_that_overflows(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """Each token's share of the loss would be 0: nothing is trained, and the loss looks perfect."""
    data = write(tmp_path, record(weight=1), record(weight=5e307), record(weight=1e308))
    with pytest.raises(
        TrainingDataError, match=r"data\.jsonl:3 has the weight 1e\+308.*divide all weights by one number"
    ):
        read_examples([data], tokenizer, CHOICE)
    data = write(tmp_path, record(weight=1e308, score=1e9))
    with pytest.raises(TrainingDataError, match=r"data\.jsonl:1 has the weight inf"):
        read_examples([data], tokenizer, replace(CHOICE, reward_weighted=True))


def test_data_without_any_example_left_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    data = write(tmp_path, record(score=0.1), record(score=0.2))
    with pytest.raises(UserError, match=r"nothing is left to train \(2 for score\)"):
        read_examples([data], tokenizer, replace(CHOICE, min_score=1))
    with pytest.raises(UserError, match=r"nothing is left to train \(they hold no record\)"):
        read_examples([write(tmp_path)], tokenizer, CHOICE)


def test_overlong_sequences_are_refused_dropped_or_truncated(tokenizer: Tokenizer, tmp_path: Path) -> None:
    conversation = {"messages": [{"role": "user", "content": "go " * 90}, {"role": "assistant", "content": "done"}]}
    data = write(tmp_path, record(), record("done " * 40), conversation)
    with pytest.raises(
        TrainingDataError, match=r"data\.jsonl:2 has \d+ tokens, and 2 sequences have more than 64.*overlong = drop"
    ):
        read_examples([data], tokenizer, CHOICE)
    made = read_examples([data], tokenizer, replace(CHOICE, overlong=OverlongAction.DROP))
    assert (len(made.examples), made.exclusions, made.truncated) == (1, {SequenceExclusion.TOO_LONG: 2}, 0)
    made = read_examples([data], tokenizer, replace(CHOICE, overlong=OverlongAction.TRUNCATE))
    assert [len(example.token_ids) for example in made.examples][1:] == [64]
    assert (made.exclusions, made.truncated) == ({SequenceExclusion.NO_LOSS: 1}, 2)


def test_ids_above_the_models_vocabulary_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(TrainingDataError, match=r"data\.jsonl:1 has token \d+, and the model's vocabulary has 3"):
        read_examples([write(tmp_path, record())], tokenizer, replace(CHOICE, vocabulary=3))


@pytest.mark.parametrize(
    ("name", "says"), [("data.csv", "is not there, and no .json"), (".", "is not a run: it has no")]
)
def test_an_invalid_data_source_is_refused(tokenizer: Tokenizer, tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_examples([tmp_path / name], tokenizer, CHOICE)


# -- trajectories ------------------------------------------------------------------------------------------------------


def test_a_runs_trajectories_are_trained_as_they_were_sampled(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """A branch has its parent's tokens before it, and no sampled token has loss twice."""
    first = make_segment(prompt=2, sampled=3, first=10)
    goes_on = replace(make_segment(prompt=1, sampled=2, first=20), parent=0, offset=5)
    branch = replace(make_segment(prompt=1, sampled=1, first=30), parent=0, offset=2)
    exporter = TrajectoryExporter(tmp_path)
    for sample, (reward, segments) in enumerate([(1.0, (first, goes_on, branch)), (0.25, None), (0.0, None)]):
        blob = pack_trajectory(make_trajectory(0, sample, reward=reward, segments=segments))
        exporter.export_trajectory(inspect_blob(blob), blob)
    made = read_examples([tmp_path], tokenizer, replace(CHOICE, min_score=0.2, reward_weighted=True))
    found = [(each.token_ids.tolist(), each.loss_mask.tolist(), each.weight) for each in made.examples]
    assert found[0] == ([10, 11, 12, 13, 14, 20, 21, 22], [0, 0, 1, 1, 1, 0, 1, 1], 1.0)
    assert found[1] == ([10, 11, 30, 31], [0, 0, 0, 1], 1.0)
    assert found[2][2] == 0.25
    assert made.exclusions == {SequenceExclusion.SCORE: 1}
    assert sum(each.trained_tokens for each in made.examples[:2]) == 6


def test_the_digest_sees_every_id_mask_and_weight(tokenizer: Tokenizer, tmp_path: Path) -> None:
    longer = {"messages": [*record()["messages"], *record()["messages"]]}
    records = [record(), record("ready"), record(weight=2), longer, record(id="ignored")]
    digests = [read_examples([write(tmp_path, each)], tokenizer, CHOICE).digest() for each in records]
    assert len(set(digests)) == 4
    assert digests[0] == digests[4]
