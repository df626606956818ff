"""Arguments between tags, whose values only the tool's schema tells.

If these fail, a command is run that the model did not write: cut, without its quotes, or as another type."""

from __future__ import annotations

import json

import pytest

from actors.agents.agent import AgentToolCall, MalformedAction
from actors.agents.sglang_formats import call_format

PROPERTIES = {
    "text": {"type": "string"},
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "either": {"type": ["string", "null"]},
    "any": {},
    "count": {"type": "integer"},
    "ratio": {"type": "number"},
    "flag": {"type": "boolean"},
    "level": {"enum": [1, 2]},
    "object": {"type": "object"},
    "list": {"type": "array"},
}
TOOL = {"type": "function", "function": {"name": "sh", "parameters": {"type": "object", "properties": PROPERTIES}}}
WRITTEN = {
    "glm45": "<tool_call>sh\n<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>",
    "glm47": "<tool_call>sh<arg_key>{}</arg_key><arg_value>{}</arg_value></tool_call>",
    "minimax-m2": '<minimax:tool_call>\n<invoke name="sh">\n<parameter name="{}">{}</parameter>\n</invoke>\n'
    "</minimax:tool_call>",
    "qwen3_coder": "<tool_call>\n<function=sh>\n<parameter={}>\n{}\n</parameter>\n</function>\n</tool_call>",
}
FAMILIES = pytest.mark.parametrize("family", WRITTEN)
TEXTS = [
    '"/opt/my prog/run" "x y"', "'x'", '"quoted"', '"a" "b"', '"""doc"""\nprint("x")', "echo \\n", "a\tb", "&lt;b&gt;",
    "  indented\n    x\n", "\n\nls\n\n", "", "\n", "sed -i 's#</function>##' p.xml; rm p.bak",
    "cat <<X\n</function>\nX",
]  # fmt: skip
JSON_TEXTS = ["true", "1e3", "null", "None", "007", '{"a": 1}', "[1, 2]", "[" * 2000]


@FAMILIES
@pytest.mark.parametrize("text", [*TEXTS, *JSON_TEXTS])
def test_a_texts_value_is_all_that_is_between_its_tags(family: str, text: str) -> None:
    read = call_format(family).read(WRITTEN[family].format("text", text), [TOOL])
    assert read.actions == [AgentToolCall("sh", {"text": text})]


@FAMILIES
@pytest.mark.parametrize("key", ["maybe", "either", "any", "unknown"])
def test_what_may_be_a_text_and_is_no_json_is_one(family: str, key: str) -> None:
    for text in [*TEXTS, "None", "007"]:
        read = call_format(family).read(WRITTEN[family].format(key, text), [TOOL])
        assert read.actions == [AgentToolCall("sh", {key: text})]


@FAMILIES
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("count", 5), ("ratio", 5), ("ratio", 1.5), ("flag", True), ("level", 2), ("object", {"a": [1]}), ("list", []),
        ("maybe", None), ("either", None), ("any", {"a": 1}), ("any", False), ("unknown", [1]),
    ],
)  # fmt: skip
def test_what_is_no_text_is_json(family: str, key: str, value: object) -> None:
    read = call_format(family).read(WRITTEN[family].format(key, json.dumps(value)), [TOOL])
    assert read.actions == [AgentToolCall("sh", {key: value})]


def test_qwen3_coders_template_writes_words_of_python() -> None:
    for word, value in (("True", True), ("False", False)):
        (call,) = call_format("qwen3_coder").read(WRITTEN["qwen3_coder"].format("flag", word), [TOOL]).actions
        assert call == AgentToolCall("sh", {"flag": value})


@FAMILIES
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("count", "five"), ("count", "5 apples"), ("count", "1_000"), ("count", "1.5"), ("count", '"5"'),
        ("count", "true"), ("flag", "1"), ("level", "high"), ("object", "[]"), ("object", '{"a": 1, "a": 2}'),
        ("list", "[" * 1010 + "]" * 1010),
    ],
)  # fmt: skip
def test_a_value_of_another_type_than_the_tools_is_malformed_with_the_reason(family: str, key: str, text: str) -> None:
    (action,) = call_format(family).read(WRITTEN[family].format(key, text), [TOOL]).actions
    assert isinstance(action, MalformedAction)
    assert "an argument of sh" in action.reason


@FAMILIES
def test_what_is_in_a_call_beside_its_arguments_is_malformed(family: str) -> None:
    call = WRITTEN[family].format("text", "ls")
    argument = WRITTEN[family].format("count", "5")
    begin, end = ("<arg_key>", "</arg_value>") if "glm" in family else ("<parameter", "</parameter>")
    written = argument[argument.index(begin) : argument.index(end) + len(end)]
    again = call[call.index(begin) : call.index(end) + len(end)]
    for wrong in (
        call.replace(begin, f"\nthen: {begin}"),
        call.replace(end, f"{end} rm -r x"),
        call.replace(end, f"{end}{again}"),
        call.replace("ls", f"ls {written}"),
        call.replace(end, ""),
    ):
        (action,) = call_format(family).read(wrong, [TOOL]).actions
        assert isinstance(action, MalformedAction), wrong
    two = call_format(family).read(call.replace(end, f"{end}{written}"), [TOOL]).actions
    assert two == [AgentToolCall("sh", {"text": "ls", "count": 5})]
