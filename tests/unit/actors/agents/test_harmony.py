"""gpt-oss' replies: well written, cut off and odd ones.

If these fail, its thoughts are run or shown as text, or a call is dropped in silence."""

from __future__ import annotations

import json

import pytest
from sglang.srt.entrypoints.openai.protocol import Tool
from sglang.srt.function_call.function_call_parser import FunctionCallParser

from actors.agents.agent import AgentToolCall, MalformedAction
from actors.agents.code_interpreter import CodeInterpreterAgent
from actors.agents.harmony import HARMONY
from actors.agents.hermes import HermesAgent
from actors.agents.prompt import PromptTemplate
from actors.gateway.completion import CompletionReading, ParsedCompletion
from sandbox.tools import SHELL_ONLY
from tests.support.actors.native_calls import ARGUMENTS, GPT_OSS, SHELL

CALLS = [AgentToolCall("shell", each) for each in ARGUMENTS]
THOUGHTS = "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant"
CALL = GPT_OSS.partition("<|call|>")[0]
FINAL = "<|channel|>final<|message|>Done."


def reading(*, may_call: bool) -> CompletionReading:
    return CompletionReading(
        text_of=lambda ids: "", stops=(), starts_in_thinking=False, may_call=may_call, calls=HARMONY, tools=[SHELL]
    )


@pytest.mark.parametrize("before", ["", THOUGHTS])
def test_calls_are_those_of_sglangs_detector(before: str) -> None:
    whole = f"{before}{GPT_OSS}"
    parser = FunctionCallParser([Tool.model_validate(SHELL)], "gpt-oss")
    _, detected = parser.parse_non_stream(f"<|start|>assistant{whole}")
    assert [AgentToolCall(str(each.name), json.loads(each.parameters)) for each in detected] == CALLS
    split = HARMONY.split_thoughts(whole)
    assert split.closed
    assert HARMONY.read(split.answer, [SHELL]) == (CALLS, "")
    assert split.thoughts == ("I look." if before else "")


@pytest.mark.parametrize(
    "call",
    [
        ' to=functions.shell<|channel|>commentary json<|message|>{"command": "ls"}',
        '<|channel|>commentary to=functions.shell<|constrain|>json<|message|>{"command": "ls"}',
        '<|channel|>commentary to=functions.shell <|constrain|>json<|message|>{"command": "ls"}<|call|>',
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" + CALL.replace(' -la", "wait": 3', '"'),
    ],
)
def test_a_call_has_several_headers(call: str) -> None:
    """The chat template writes the recipient first, and the model after the channel."""
    assert HARMONY.read(call, [SHELL]).actions == [AgentToolCall("shell", {"command": "ls"})]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("Done.", "does not consist"),
        ("<|channel|>note<|message|>Done.", "does not consist"),
        ("<|channel|>analysis<|message|>I look." + FINAL, "does not consist"),
        ("<|channel|>analysis<|message|>I look.", "inside its thoughts"),
        (THOUGHTS + "<|channel|>commentary to=functions.shell", "does not consist"),
        (THOUGHTS + CALL[:-1], "not valid JSON"),
        (CALL.replace("json<", "code<"), "not called json"),
        (CALL.replace("{", "[{").replace("}", "}]"), "not a JSON object"),
        (CALL.replace("commentary", "analysis"), "calls no function"),
        (CALL.replace("functions.shell", "browser.search"), "calls no function"),
        (f"{CALL}<|call|><|start|>assistant{CALL[:-1]}", "not valid JSON"),
    ],
)
def test_any_other_reply_is_malformed_with_a_reason_and_runs_nothing(reply: str, reason: str) -> None:
    agent = HermesAgent(PromptTemplate("sys"), SHELL_ONLY, SHELL_ONLY, HARMONY)
    (action,) = agent.parse_reply(reply).actions
    assert isinstance(action, MalformedAction)
    assert reason in action.reason


def test_a_call_that_is_cut_off_is_malformed_wherever_it_ends() -> None:
    for at in range(len(CALL)):
        split = HARMONY.split_thoughts(THOUGHTS + CALL[:at])
        actions = HARMONY.read(split.answer, [SHELL]).actions
        assert not split.closed or [type(each) for each in actions] == [MalformedAction], CALL[:at]


def test_a_message_may_contain_the_text_of_other_families_marks() -> None:
    said = "In <think> and <tool_call> I write <|im_end|>, a < b."
    assert HARMONY.read(f"<|channel|>final<|message|>{said}", [SHELL]) == ([], said)


def test_many_marks_are_read_in_linear_time() -> None:
    """A worker's loop, and all of its episodes, would stand still meanwhile."""
    for piece in ("<|start|>assistant", "<|channel|>", "<|channel|>final<|message|>", " to=functions.", "<", " "):
        HARMONY.read(FINAL + piece * (200_000 // len(piece)), [SHELL])
        HARMONY.split_thoughts("<|channel|>analysis<|message|>" + piece * (200_000 // len(piece)))


def test_the_final_message_is_the_answer() -> None:
    agent = CodeInterpreterAgent(PromptTemplate("sys"), {}, HARMONY)
    (written,) = agent.parse_reply(THOUGHTS + FINAL).actions
    assert isinstance(written, AgentToolCall)
    assert written.arguments == {"answer": "Done."}


def test_a_harness_gets_thoughts_text_and_calls_apart() -> None:
    assert reading(may_call=True).parse(THOUGHTS + CALL) == ParsedCompletion(
        "I look.", "", (CALLS[0],), malformed=False
    )
    assert reading(may_call=False).parse(THOUGHTS + FINAL) == ParsedCompletion("I look.", "Done.", (), malformed=False)
    assert reading(may_call=False).parse(CALL).content == CALL
    assert HARMONY.find_first_call(GPT_OSS) == (0, GPT_OSS.index("<|call|>") + len("<|call|>"))
