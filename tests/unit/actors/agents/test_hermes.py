"""If these fail, a model's call is run as something it did not write, or dropped in silence."""

from __future__ import annotations

import json

import pytest

from actors.agents.hermes import AgentToolCall, FinalReply, MalformedAction, parse_tool_calls, text_outside_calls


def test_a_call_is_parsed_with_its_arguments() -> None:
    text = '<tool_call>\n{"name": "shell_exec", "arguments": {"command": "ls \\"a b\\""}}\n</tool_call>'
    assert parse_tool_calls(text) == [AgentToolCall("shell_exec", {"command": 'ls "a b"'})]


def test_several_calls_keep_their_order_and_a_broken_one_is_reported_among_them() -> None:
    text = (
        '<tool_call>{"name": "a", "arguments": {}}</tool_call>'
        "<tool_call>{broken}</tool_call>"
        '<tool_call>{"name": "b", "arguments": {}}</tool_call>'
    )
    first, second, third = parse_tool_calls(text)
    assert (first, third) == (AgentToolCall("a", {}), AgentToolCall("b", {}))
    assert isinstance(second, MalformedAction)


def test_a_marker_inside_a_calls_strings_is_part_of_its_argument() -> None:
    """Otherwise a call that edits an agent's own source is lost, and the next one runs without it."""
    commands = ["grep '</tool_call>' agent.py", 'echo \'<tool_call>\n{"name": "x"}\n</tool_call>\'', "</tool_call>"]
    calls = [AgentToolCall("shell_exec", {"command": command}) for command in commands]
    written = [json.dumps({"name": call.name, "arguments": call.arguments}) for call in calls]
    text = "".join(f"<tool_call>\n{call}\n</tool_call>\n" for call in written)
    assert parse_tool_calls(text) == calls
    assert text_outside_calls(f"I look.\n{text}") == "I look."


def test_what_follows_the_json_of_a_call_makes_only_that_call_malformed() -> None:
    text = (
        '<tool_call>{"name": "a", "arguments": {"x": "</tool_call>"}} and more</tool_call>'
        '<tool_call></tool_call> <tool_call>{"name": "b", "arguments": {}}</tool_call>'
    )
    first, second, third = parse_tool_calls(text)
    assert isinstance(first, MalformedAction)
    assert isinstance(second, MalformedAction)
    assert third == AgentToolCall("b", {})


def test_a_reply_without_a_call_is_final() -> None:
    assert parse_tool_calls("done") == FinalReply("done")


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "a", "arguments": {}}',
        '{"name": "a", "arguments": {}}</tool_call>',
        "<tool_call>[1]</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": "a", "arguments": "ls"}</tool_call>',
        '<tool_call>{"name": "a", "arguments": {"x": 1, "x": 2}}</tool_call>',
        '<tool_call>{"name": "a", "arguments": {"x": ' + "[" * 1010 + "]" * 1010 + "}}</tool_call>",
        "<tool_call></tool_call>",
    ],
)
def test_a_malformed_call_has_a_reason_and_does_not_end_the_episode(text: str) -> None:
    actions = parse_tool_calls(text)
    assert isinstance(actions, list)
    assert isinstance(actions[0], MalformedAction)
    assert actions[0].reason


@pytest.mark.parametrize(
    "piece", ["\n", " ", "<tool_call>", "</tool_call>", "<tool_call>\n", "<", "{", '{"', '{"a":[', '<tool_call>{"a":["']
)
def test_long_repetitive_replies_are_parsed_in_linear_time(piece: str) -> None:
    """A worker's loop, and all of its episodes, would stand still for hours: until it is killed as one that hangs."""
    actions = parse_tool_calls("<tool_call>" + piece * (100_000 // len(piece)))
    assert isinstance(actions, list)
    assert all(isinstance(action, MalformedAction) for action in actions)
