"""GRPO-TCR's agent: Hermes calls of one tool that runs Python, and an answer in its last reply.

The last reply is written to the file where the tests find it.  Each call that does not parse is answered with its
error, whereas the original drops it.  https://github.com/Gen-Verse/Open-AgentRL
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from actors.agents.agent import ActionOutcome, AgentToolCall, ParsedReply, render_opening
from actors.agents.call_format import CallFormat
from actors.agents.hermes import HERMES, format_tool_messages, parse_calling_reply
from actors.agents.prompt import PromptTemplate
from actors.tokens.chat_messages import ChatMessage
from sandbox.tasks.task import Task
from sandbox.tools import CODE_INTERPRETER, Toolset
from sandbox.tools.answer import ANSWER_TOOL


@dataclass(frozen=True, slots=True)
class CodeInterpreterAgent:
    """Calls the code interpreter, then answers."""

    prompt: PromptTemplate
    offered_tools: Toolset
    calls: CallFormat = HERMES
    """The format of the model's calls."""

    @property
    def tools(self) -> Toolset:
        return {**CODE_INTERPRETER, ANSWER_TOOL.name: ANSWER_TOOL}

    def opening_messages(self, task: Task) -> list[ChatMessage]:
        return render_opening(self.prompt, task, CODE_INTERPRETER)

    def parse_reply(self, reply: str) -> ParsedReply:
        parsed = parse_calling_reply(reply, self.calls, CODE_INTERPRETER)
        if not parsed.final:
            return parsed
        answer = self.calls.read(self.calls.split_thoughts(reply).answer, ()).text
        return ParsedReply([AgentToolCall(ANSWER_TOOL.name, {"answer": answer})], final=True)

    def format_outcomes(self, outcomes: Sequence[ActionOutcome]) -> list[ChatMessage] | None:
        return format_tool_messages(outcomes)
