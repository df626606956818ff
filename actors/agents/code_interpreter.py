"""GRPO-TCR's agent: Hermes calls of one tool that runs Python, and an answer in its last reply.

The last reply goes to the file where the tests find it.  Each call that does not parse is answered with what is wrong
with it, where the original drops it.  https://github.com/Gen-Verse/Open-AgentRL
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from actors.agents.agent import Outcome, Reading, ToolCall, opening
from actors.agents.chat import Message
from actors.agents.hermes import read_calls, tell_calls
from actors.agents.prompt import Prompt
from actors.agents.thoughts import spoken
from sandbox.tasks.task import Task
from sandbox.tools import CODE_INTERPRETER, Toolset
from sandbox.tools.answer import ANSWER


@dataclass(frozen=True, slots=True)
class CodeInterpreterAgent:
    prompt: Prompt
    offered: Toolset

    @property
    def tools(self) -> Toolset:
        return {**CODE_INTERPRETER, ANSWER.name: ANSWER}

    def opening(self, task: Task) -> list[Message]:
        return opening(self.prompt, task, CODE_INTERPRETER)

    def read(self, reply: str) -> Reading:
        reading = read_calls(reply)
        if not reading.final:
            return reading
        return Reading([ToolCall(ANSWER.name, {"answer": spoken(reply) or ""})], final=True)

    def tell(self, outcomes: Sequence[Outcome]) -> list[Message] | None:
        return tell_calls(outcomes)
