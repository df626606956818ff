"""Calls of each family, in the forms that SGLang's own tests have: well written, cut off, repaired and unknown.

If these fail, a model's call is run as something it did not write, or dropped in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.entrypoints.openai.protocol import Tool
from sglang.srt.function_call.function_call_parser import FunctionCallParser

from actors.agents.agent import AgentToolCall, MalformedAction
from actors.agents.hermes import HERMES, HermesAgent
from actors.agents.prompt import PromptTemplate
from actors.agents.registry import load_call_format, require_readable_replies
from actors.agents.settings import AgentKind, AgentSettings, CallFormatKind
from actors.agents.sglang_formats import call_format, detect_call_format
from actors.tokens.chat_format import load_tokenizer
from launch.data.demo.tokenizer import train_tokenizer
from protocol.errors import UserError
from sandbox.tools import SHELL_ONLY
from tests.support.actors.native_calls import ARGUMENTS, DEEPSEEK_V3, DEEPSEEK_V31, NATIVE_CALLS, SHELL

TEMPLATE_FOLDER = Path(__file__).parents[3] / "support" / "templates"
JSON_CALL = '{"name": "shell", "PLACE": {"command": "ls"}}'
PARTS = {
    "deepseekv3": [*DEEPSEEK_V3[:2], DEEPSEEK_V3[3]],
    "deepseekv31": [*DEEPSEEK_V31[:2], DEEPSEEK_V31[3]],
    "glm45": ["shell\n<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>"],
    "glm47": ["shell<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>"],
    "kimi_k2": [
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
    ],
    "llama3": [JSON_CALL.replace("PLACE", "parameters"), JSON_CALL.replace("PLACE", "arguments")],
    "minimax-m2": [
        '<invoke name="shell">',
        '<parameter name="command">',
        "</parameter>",
        "</invoke>",
        "</minimax:tool_call>",
    ],
    "mistral": ["shell[ARGS]", f"[{JSON_CALL.replace('PLACE', 'arguments')}]", '[{"arguments": {}, "name": "shell"}]'],
    "qwen3_coder": ["<function=shell>", "<parameter=command>", "</parameter>", "</tool_call>"],
}
"""What of a call a reply may have without its mark."""
FAMILIES = pytest.mark.parametrize("family", sorted(NATIVE_CALLS))


def detected(family: str, text: str) -> list[AgentToolCall]:
    """The calls as SGLang's detector reads them."""
    _, calls = FunctionCallParser([Tool.model_validate(SHELL)], family).parse_non_stream(text)
    return [AgentToolCall(str(call.name), json.loads(call.parameters)) for call in calls]


@FAMILIES
@pytest.mark.parametrize("before", ["", "I look.\n"])
def test_calls_are_those_of_the_detector_in_their_order(family: str, before: str) -> None:
    read = call_format(family).read(f"{before}{NATIVE_CALLS[family]}", [SHELL])
    assert (
        read.actions == detected(family, NATIVE_CALLS[family]) == [AgentToolCall("shell", each) for each in ARGUMENTS]
    )
    assert read.text == before.strip()


@FAMILIES
def test_a_reply_without_a_mark_calls_nothing(family: str) -> None:
    """Even if it speaks of one."""
    said = "All done: {x} is [1], and </function> is no call."
    assert call_format(family).read(said, [SHELL]) == ((), said)


@FAMILIES
def test_text_around_the_calls_is_kept(family: str) -> None:
    read = call_format(family).read(f"I look.\n{NATIVE_CALLS[family]}\n\nThen I wait: {{x}} [1].\n", [SHELL])
    assert read == ([AgentToolCall("shell", each) for each in ARGUMENTS], "I look.\nThen I wait: {x} [1].")


def test_text_between_the_calls_is_kept() -> None:
    said = NATIVE_CALLS["qwen3_coder"].replace("</tool_call>\n", "</tool_call>\nThen:\n")
    assert call_format("qwen3_coder").read(said, [SHELL]).text == "Then:"
    said = NATIVE_CALLS["kimi_k2"].replace(
        "_end|><|tool_call_b", "_end|><|tool_calls_section_end|>\n<|tool_calls_section_begin|>Then:<|tool_call_b"
    )
    assert call_format("kimi_k2").read(said, [SHELL]) == ([AgentToolCall("shell", each) for each in ARGUMENTS], "Then:")


@pytest.mark.parametrize(("family", "part"), [(family, part) for family, parts in PARTS.items() for part in parts])
def test_a_part_of_a_call_without_its_mark_is_malformed(family: str, part: str) -> None:
    """It would end the episode, or be dropped."""
    call = NATIVE_CALLS[family]
    texts = [f"I look.\n{part} then", f"{part}\n{call}", f"{call}\nThen:\n{part}"]
    for text in texts[:2] if family == "llama3" else texts:  # whose later calls have no mark
        (action,) = call_format(family).read(text, [SHELL]).actions
        assert isinstance(action, MalformedAction), text


@FAMILIES
def test_a_call_without_the_first_mark_is_malformed(family: str) -> None:
    shape = call_format(family)
    (action,) = shape.read("I look.\n" + NATIVE_CALLS[family].replace(shape.marks[0], ""), [SHELL]).actions
    assert isinstance(action, MalformedAction)


@FAMILIES
def test_many_marks_are_read_in_linear_time(family: str) -> None:
    """A worker's loop, and all of its episodes, would stand still meanwhile."""
    shape = call_format(family)
    for piece in [*shape.marks, *PARTS[family], f'{shape.marks[0]}{{"name":']:
        (action,) = shape.read(shape.marks[0] + piece * (200_000 // len(piece)), [SHELL]).actions
        assert isinstance(action, MalformedAction)


@FAMILIES
def test_a_call_that_is_cut_off_is_malformed_wherever_it_ends(family: str) -> None:
    """A detector may complete it, or drop it: half of a command would run, or the episode end."""
    shape, text = call_format(family), NATIVE_CALLS[family]
    last = max(text.rfind(end) for end in ("}", "</invoke>", "</tool_call>", "call_end|>", "call▁end｜>"))
    first = max(text.index(mark) + len(mark) for mark in shape.marks if mark in text and len(mark) > 1)
    for at in range(first, last):
        actions = shape.read(text[:at], [SHELL]).actions
        whole = AgentToolCall("shell", ARGUMENTS[0])
        assert actions == [whole] or [type(each) for each in actions] == [MalformedAction], text[:at]


@FAMILIES
def test_a_call_of_no_tool_is_run_as_such_or_malformed_but_not_dropped(family: str) -> None:
    text = NATIVE_CALLS[family].replace("shell", "nobody", 1)
    actions = call_format(family).read(text, [SHELL]).actions
    assert isinstance(actions[0], MalformedAction) or actions[0].name == "nobody"
    assert len(actions) in (1, len(ARGUMENTS))


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("llama3", "{'name': 'shell', 'parameters': {'command': 'ls'}}"),
        ("llama3", '{"answer": 1}'),
        ("llama3", '{"name": "shell", "parameters": "ls"}'),
        ("llama3", '{"name": "shell", "parameters": [1]}'),
        ("llama3", '{"name": "shell", "parameters": {"command": "ls"}, "parameters": {"command": "rm"}}'),
        ("llama3", '{"name": "shell", "arguments": {"command": "ls"}, "parameters": {"command": "rm"}}'),
        ("llama3", '{"name": "shell", "parameters": {"command": ' + "[" * 1010 + "]" * 1010 + "}}"),
        ("mistral", '[TOOL_CALLS] [{"name": "shell", "arguments": "ls"}]'),
        ("kimi_k2", NATIVE_CALLS["kimi_k2"].replace(json.dumps(ARGUMENTS[1]), '"ls"')),
        ("llama3", '<|python_tag|>{"name": "shell", "parameters": {"command": "ls"}}; and {"x": 1}'),
        ("mistral", '[TOOL_CALLS] [{"name": "shell", "arguments": {"command": "ls",}}]'),
        ("mistral", "[TOOL_CALLS] shell"),
        ("qwen3_coder", "<tool_call>\n<function=shell>\n<parameter=command>\nls\n</function>\n</tool_call>"),
        ("qwen3_coder", "<tool_call>\nls\n</tool_call>"),
        ("glm45", "<tool_call>shell\n<arg_key>command</arg_key>\n<arg_value>ls\n</tool_call>"),
        ("glm47", "<tool_call>shell<arg_key>command</arg_key></tool_call>"),
        ("deepseekv31", "".join((DEEPSEEK_V31[2], DEEPSEEK_V31[0], '{"command": ls}', *DEEPSEEK_V31[1::2]))),
        ("kimi_k2", "<|tool_calls_section_begin|><|tool_calls_section_end|>"),
        ("minimax-m2", '<minimax:tool_call>\n<invoke name="shell">\n</minimax:tool_call>'),
    ],
)
def test_what_a_detector_would_repair_or_drop_is_malformed_with_a_reason(family: str, text: str) -> None:
    (action,) = call_format(family).read(text, [SHELL]).actions
    assert isinstance(action, MalformedAction)
    assert family in action.reason


def test_mistrals_calls_have_a_second_form() -> None:
    text = '[TOOL_CALLS]shell[ARGS]{"command": "ls"}[TOOL_CALLS]shell[ARGS]{"command": "pwd"}'
    identified = text.replace("[ARGS]", "[CALL_ID]a1b2c3d4e[ARGS]")
    array = '[TOOL_CALLS][{"name": "shell", "arguments": {"command": "ls"}, "id": "a1b2c3d4e"}, \
{"name": "shell", "arguments": {"command": "pwd"}}]'
    for written in (text, identified, array):  # of which the detector reads the first
        assert call_format("mistral").read(written, [SHELL]).actions == [
            AgentToolCall("shell", {"command": each}) for each in ("ls", "pwd")
        ]


@FAMILIES
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_reply_is_read_without_an_error_and_no_mark_is_lost(family: str, data: st.DataObject) -> None:
    pieces = [NATIVE_CALLS[family], *NATIVE_CALLS[family].split("\n"), *call_format(family).marks, *PARTS[family]]
    text = "".join(data.draw(st.lists(st.sampled_from(pieces) | st.text(max_size=4), max_size=6)))
    read = call_format(family).read(text, [SHELL])
    if call_format(family).marks[0] in text:
        assert read.actions


def test_an_agent_reads_the_calls_of_its_models_format() -> None:
    agent = HermesAgent(PromptTemplate("sys"), SHELL_ONLY, SHELL_ONLY, call_format("qwen3_coder"))
    call = "<tool_call>\n<function=shell_exec>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"
    assert agent.parse_reply(f"<think>\nhm\n</think>\n\n{call}").actions == [
        AgentToolCall("shell_exec", {"command": "ls"})
    ]
    assert agent.parse_reply("<think>\n" + call).is_malformed
    assert agent.parse_reply("done").final


TEMPLATES = {
    "deepseekv3": "{{ '<｜tool▁calls▁begin｜>' + c.type + '<｜tool▁sep｜>' + c.name + '\\n```json\\n' }}",
    "deepseekv31": "{{ '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + c.name + '<｜tool▁sep｜>' + c.arguments }}",
    "glm45": "{{ '\\n<tool_call>' + tc.name }}\\n<arg_key>{{ k }}</arg_key>",
    "glm47": "{{- '<tool_call>' + tc.name -}}<arg_key>{{ k }}</arg_key>",
    "kimi_k2": "<|tool_calls_section_begin|>",
    "llama3": "{{ '<|start_header_id|>assistant' }}{{ '{\"name\": \"' + c.name + '\", \"parameters\": ' }}",
    "minimax-m2": "<minimax:tool_call>",
    "mistral": "[TOOL_CALLS]",
    "qwen3_coder": "<tool_call>\\n<function=example>\\n<parameter=a>",
}
"""How the families' chat templates write calls, in part."""


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_chat_template_tells_the_format(family: str) -> None:
    tokenizer = train_tokenizer(1024)
    tokenizer.chat_template = TEMPLATES[family]
    assert detect_call_format(tokenizer) == call_format(family)


@pytest.mark.parametrize("name", ["qwen3", "qwen3_instruct_2507", None])
def test_qwens_templates_tell_hermes(name: str | None) -> None:
    tokenizer = train_tokenizer(1024)
    if name:
        tokenizer.chat_template = (TEMPLATE_FOLDER / f"{name}.jinja").read_text()
    assert detect_call_format(tokenizer) is HERMES


@pytest.mark.parametrize("template", ["{{ messages }}", "<|channel|>commentary"])
def test_a_template_without_a_format_that_is_read_is_refused(template: str) -> None:
    tokenizer = train_tokenizer(1024)
    tokenizer.chat_template = template
    with pytest.raises(UserError, match=r"finds no format.*agent\.kind = 'bash'"):
        detect_call_format(tokenizer)


def test_the_models_format_needs_the_templates_tools_or_ones_own_prompt_and_an_agent_that_calls() -> None:
    with pytest.raises(ValueError, match=r"set agent\.tools = true"):
        AgentSettings(format=CallFormatKind.AUTO, tools=False)
    AgentSettings(format=CallFormatKind.AUTO, tools=False, system_prompt="Call shell_exec so: …")
    with pytest.raises(ValueError, match=r"agent\.kind = 'bash' does not"):
        AgentSettings(format=CallFormatKind.AUTO, kind="bash")


def test_the_format_is_that_of_the_models_folder_only_if_it_is_asked_for(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(1024)
    tokenizer.chat_template = TEMPLATES["qwen3_coder"]
    tokenizer.save_pretrained(tmp_path)
    found = [load_call_format(AgentSettings(format=each), str(tmp_path)) for each in CallFormatKind]
    assert found == [HERMES, call_format("qwen3_coder")]


@pytest.mark.parametrize("kind", AgentKind)
def test_an_agent_that_does_not_read_the_models_channels_is_refused(kind: str) -> None:
    """What gpt-oss only thinks of would run otherwise."""
    tokenizer = train_tokenizer(1024)
    tokenizer.chat_template = (TEMPLATE_FOLDER / "families" / "gpt_oss.jinja").read_text()
    with pytest.raises(UserError, match=rf"kind = '{kind}' does not read .*kind = 'hermes', agent\.format = 'auto'"):
        require_readable_replies(AgentSettings(kind=kind), tokenizer)
    require_readable_replies(AgentSettings(format=CallFormatKind.AUTO), tokenizer)


def test_a_model_that_is_published_without_a_chat_template_is_refused_at_the_start(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(1024)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"no chat template \(DeepSeek-V3\.2 and V4 .*--model URL"):
        load_tokenizer(str(tmp_path))
