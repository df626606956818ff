"""If these fail, a data set in a usual shape is refused, or a broken one is trained without a word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actors.agents.agent import AgentToolCall
from actors.agents.json_action import JsonActionAgent
from actors.agents.prompt import PromptTemplate
from launch.data.conversations import TrainingDataError, parse_conversation, read_conversations
from protocol.errors import UserError
from sandbox.tools import SHELL_ONLY
from tests.support.tasks.parquet_files import write_parquet

ASK = {"role": "user", "content": "Go."}
SAY = {"role": "assistant", "content": "done"}
CALL = {"name": "shell_exec", "arguments": {"command": "ls"}}
TEMPLATED = [{"type": "function", "function": CALL}]


def test_openai_conversations_are_read_with_calls_tools_and_scores() -> None:
    called = {"id": "1", "type": "function", "function": {**CALL, "arguments": json.dumps(CALL["arguments"])}}
    record = {
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Go"}, {"type": "text", "text": "."}]},
            {"role": "assistant", "content": None, "tool_calls": [called], "weight": 0},
            {"role": "tool", "tool_call_id": "1", "content": "a.txt"},
            {"role": "assistant", "content": "done", "reasoning_content": "seen"},
        ],
        "tools": [{"type": "function", "function": {"name": "shell_exec"}}],
        "reward": 0.5,
        "weight": 2,
        "id": "ignored",
    }
    found = parse_conversation(record, "f:1")
    assert [message["role"] for message in found.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert found.messages[1]["content"] == "Go."
    assert found.messages[2]["content"] == ""
    assert found.messages[2].get("tool_calls") == TEMPLATED
    assert found.messages[4].get("reasoning_content") == "seen"
    assert (found.trained_messages, found.score, found.weight, len(found.tools)) == ({4}, 0.5, 2.0, 1)


def test_sharegpt_conversations_are_read_with_calls_and_tools_as_strings() -> None:
    record = {
        "system": "Be brief.",
        "conversations": [
            {"from": "human", "value": "Go."},
            {"from": "function_call", "value": json.dumps(CALL)},
            {"from": "observation", "value": "a.txt"},
            {"from": "gpt", "value": "done", "train": True},
        ],
        "tools": json.dumps([{"name": "shell_exec"}]),
    }
    found = parse_conversation(record, "f:1")
    assert [message["role"] for message in found.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert found.messages[2].get("tool_calls") == TEMPLATED
    assert (found.trained_messages, found.score, found.tools) == ({2, 4}, None, ({"name": "shell_exec"},))


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_affinetes_samples_are_read_in_the_form_that_its_own_code_stores(tmp_path: Path, suffix: str) -> None:
    """The ART seed's README, "Sample Data Format", and its converter for LIVEWEB.  Else its warm start has no data."""
    swe_synth = {
        "task_id": 1034,
        "score": 0.25,
        "model": "a model",
        "latency_ms": 0,
        "extra": {
            "all_passed": False,
            "all_result": "234/236",
            "bug_types": ["logic-inversion"],
            "conversation": [{"role": "system", "content": "You are helpful."}, ASK, SAY],
            "problem_statement": "Reset identity button shows…",
            "fix_patch": "diff --git a/…",
        },
    }
    call, stopped = {"type": "shell_exec", "params": {"command": "ls"}}, "```json\n{}\n```"
    liveweb = {
        "task_id": 7,
        "score": 1.0,
        "trajectory": [
            {"observation": "a page", "action": call},
            {"observation": {"url": "b"}, "action": {"action": call}},
            {"observation": "an end", "action": stopped},
        ],
    }
    file = tmp_path / f"samples{suffix}"
    records = [json.dumps(swe_synth), json.dumps(liveweb)]
    file.write_text(f"[{', '.join(records)}]" if suffix == ".json" else "\n".join(records))
    mended, browsed = read_conversations(file)
    assert [message["role"] for message in mended.messages] == ["system", "user", "assistant"]
    assert (mended.trained_messages, mended.score) == ({2}, 0.25)
    assert [message["content"] for message in browsed.messages[::2]] == ["a page", '{"url":"b"}', "an end"]
    assert (browsed.trained_messages, browsed.score) == ({1, 3, 5}, 1.0)
    assert browsed.messages[5]["content"] == stopped
    agent = JsonActionAgent(PromptTemplate("look"), SHELL_ONLY)
    for message in (browsed.messages[1], browsed.messages[3]):
        (action,) = agent.parse_reply(message["content"]).actions
        assert isinstance(action, AgentToolCall)
        assert (action.name, action.arguments) == ("shell_exec", {"command": "ls"})


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ([], "a record is an object"),
        ({"text": "hello"}, r"none of 'messages', .* is a list in it \(keys: text\)"),
        ({"messages": []}, "the conversation is empty"),
        ({"messages": [ASK]}, "no message of an assistant has loss"),
        ({"messages": [ASK, {**SAY, "train": False}]}, "no message of an assistant has loss"),
        ({"messages": [SAY]}, "message 1 is the first and an assistant's"),
        ({"messages": [ASK, SAY, SAY]}, "message 3 and the one before are both an assistant's"),
        ({"messages": [ASK, {"role": "asistant", "content": "x"}]}, "message 2: no role .*did you mean 'assistant'"),
        (
            {"messages": [ASK, {"role": "assistant", "content": ""}]},
            "message 2: the assistant's message has neither text nor calls",
        ),
        ({"messages": [ASK, {"role": "assistant", "content": 3}]}, r"messages\.1\.content"),
        ({"messages": [{**ASK, "content": [{"type": "image_url"}]}, SAY]}, r"messages\.0\.content"),
        (
            {"messages": [ASK, {**SAY, "tool_calls": [{**CALL, "arguments": "{"}]}]},
            r"tool_calls\.0\.function\.arguments",
        ),
        ({"messages": [ASK, {**SAY, "weight": 0.5}]}, r"messages\.1\.weight"),
        ({"messages": [ASK, SAY], "score": "high"}, "score"),
        ({"messages": [ASK, SAY], "weight": -1}, "weight: must be at least 0"),
        ({"messages": [ASK, SAY], "score": 1, "reward": 0}, "two names for one thing"),
        ({"conversations": [{"from": "nobody", "value": "x"}]}, "no role is called 'nobody'"),
        ({"conversations": ["x"]}, r"messages\.0"),
        ({"conversations": "x", "extra": "y"}, r"is a list in it \(keys: conversations, extra\)"),
        ({"trajectory": [{"observation": "a page"}]}, r"messages\.0\.role"),
    ],
)
def test_a_record_that_cannot_be_trained_is_refused_with_its_location(record: object, says: str) -> None:
    with pytest.raises(TrainingDataError, match=f"^data.jsonl:7: .*{says}") as caught:
        parse_conversation(record, "data.jsonl:7")
    assert "\n" not in str(caught.value)


def test_a_bad_line_is_named_by_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(json.dumps({"messages": [ASK, SAY]}) + "\n\n{'messages': []}\n")
    with pytest.raises(TrainingDataError, match=r"data\.jsonl:3: no valid JSON"):
        list(read_conversations(file))


def test_a_json_file_is_a_list_of_records_or_one(tmp_path: Path) -> None:
    file, record = tmp_path / "data.json", {"messages": [ASK, SAY]}
    file.write_text(json.dumps([record, record], indent=1))
    assert [each.location for each in read_conversations(file)] == [f"{file}: record 1", f"{file}: record 2"]
    file.write_text(json.dumps(record))
    assert len(list(read_conversations(file))) == 1
    file.write_text(f"{json.dumps(record)}\n{json.dumps(record)}\n")
    with pytest.raises(TrainingDataError, match=r"name a file with a record a line \.jsonl"):
        list(read_conversations(file))


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"data{suffix}"
    file.write_text(json.dumps({"messages": [ASK, SAY]}), "utf-8-sig")
    (found,) = read_conversations(file)
    assert found.messages == (ASK, SAY)


def test_a_parquet_file_has_one_record_per_row(tmp_path: Path) -> None:
    """Its columns and fields are in every row: null where a record lacks them."""
    called = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": CALL}]}
    result = {"role": "tool", "content": "a.txt"}
    records = [{"messages": [ASK, SAY], "score": 1.0}, {"messages": [ASK, called, result, SAY], "source": "b"}]
    file = write_parquet(tmp_path / "data.parquet", records)
    first, second = read_conversations(file)
    assert (first.messages, first.score, first.location) == ((ASK, SAY), 1.0, f"{file}: row 1")
    assert second.messages[1].get("tool_calls") == TEMPLATED
    assert (second.score, second.trained_messages) == (None, {1, 3})
    file.write_bytes(b"messages")
    with pytest.raises(UserError, match=r"cannot read .*data\.parquet: "):
        list(read_conversations(file))


@pytest.mark.parametrize(
    "call",
    [
        {"tool_calls": [{"type": "function", "function": {"name": "shell_exec", "arguments": ""}}]},
        {"tool_calls": [{"type": "function", "function": {"name": "shell_exec", "arguments": None}}]},
        {"function_call": {"name": "shell_exec", "arguments": ""}},
        {"function_call": {"name": "shell_exec", "arguments": "{}"}, "tool_calls": None},
    ],
)
def test_calls_are_read_in_the_older_form_and_without_arguments(call: dict[str, object]) -> None:
    asked = {"role": "assistant", "content": None, **call}
    result = {"role": "function", "name": "shell_exec", "content": "a.txt"}
    found = parse_conversation({"messages": [ASK, asked, result, SAY]}, "f:1")
    assert found.messages[1].get("tool_calls") == [
        {"type": "function", "function": {"name": "shell_exec", "arguments": {}}}
    ]
    assert [message["role"] for message in found.messages] == ["user", "assistant", "tool", "assistant"]
