"""Replies that call a tool twice, as each family of models writes them."""

from __future__ import annotations

import json

SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}, "wait": {"type": "integer"}}},
    },
}
ARGUMENTS: list[dict[str, object]] = [{"command": "ls -la", "wait": 3}, {"command": "pwd"}]
DEEPSEEK_V3 = (
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>shell\n```json\n", "\n```<｜tool▁call▁end｜>", "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
)  # fmt: skip
DEEPSEEK_V31 = ("<｜tool▁call▁begin｜>shell<｜tool▁sep｜>", "<｜tool▁call▁end｜>", *DEEPSEEK_V3[2:])


def json_calls(begin: str, end: str, opening: str, closing: str, *, between: str = "") -> str:
    return opening + between.join(f"{begin}{json.dumps(each)}{end}" for each in ARGUMENTS) + closing


def named(arguments: str) -> list[str]:
    return [json.dumps({"name": "shell", arguments: each}) for each in ARGUMENTS]


def tagged(call: str, argument: str, end: str) -> str:
    """Calls whose arguments have tags of their own."""
    calls = ("".join(argument.format(*item) for item in each.items()) for each in ARGUMENTS)
    return "\n".join(call + each + end for each in calls)


GPT_OSS = (
    '<|channel|>commentary to=functions.shell <|constrain|>json<|message|>{"command": "ls -la", "wait": 3}<|call|>'
    '<|start|>assistant<|channel|>commentary to=functions.shell <|constrain|>json<|message|>{"command": "pwd"}<|call|>'
)
NATIVE_CALLS = {
    "deepseekv3": json_calls(*DEEPSEEK_V3, between="\n"),
    "deepseekv31": json_calls(*DEEPSEEK_V31),
    "glm45": tagged(
        "<tool_call>shell\n", "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n", "</tool_call>"
    ),
    "glm47": tagged("<tool_call>shell", "<arg_key>{}</arg_key><arg_value>{}</arg_value>", "</tool_call>"),
    "kimi_k2": "<|tool_calls_section_begin|>"
    + "".join(
        f"<|tool_call_begin|>functions.shell:{n}<|tool_call_argument_begin|>{json.dumps(each)}<|tool_call_end|>"
        for n, each in enumerate(ARGUMENTS)
    )
    + "<|tool_calls_section_end|>",
    "llama3": "<|python_tag|>" + ";".join(named("parameters")),
    "minimax-m2": "<minimax:tool_call>\n"
    + tagged('<invoke name="shell">\n', '<parameter name="{}">{}</parameter>\n', "</invoke>")
    + "\n</minimax:tool_call>",
    "mistral": f"[TOOL_CALLS] [{', '.join(named('arguments'))}]",
    "qwen3_coder": tagged(
        "<tool_call>\n<function=shell>\n", "<parameter={}>\n{}\n</parameter>\n", "</function>\n</tool_call>"
    ),
}  # fmt: skip
