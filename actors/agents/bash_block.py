"""Exactly one block of bash in each reply, as mini-SWE-agent has it and SWE-SYNTH needs it.

What else a reply says is thought aloud.  Nothing that it says ends the episode: a command does, whose output begins
with :data:`SUBMIT` and which succeeded by its own word.  An agent that lies about that ends its own episode early, so
an exit code is good enough for it.  https://github.com/SWE-agent/mini-swe-agent
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from actors.agents.agent import Malformed, Outcome, Reading, ToolCall, opening
from actors.agents.chat import Message
from actors.agents.fences import Unclosed, blocks
from actors.agents.prompt import Prompt
from actors.agents.thoughts import UNENDED, spoken
from sandbox.tasks.task import Task
from sandbox.tools import SHELL_ONLY, Toolset
from sandbox.tools.shell_only import SHELL_EXEC

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_FORM = "write exactly one, which begins with a line ```bash and ends with a line ```"


@dataclass(frozen=True, slots=True)
class BashBlockAgent:
    prompt: Prompt

    @property
    def tools(self) -> Toolset:
        return SHELL_ONLY

    @property
    def offered(self) -> Toolset:
        return {}

    def opening(self, task: Task) -> list[Message]:
        return opening(self.prompt, task, self.tools)

    def read(self, reply: str) -> Reading:
        return Reading([_action(reply)])

    def tell(self, outcomes: Sequence[Outcome]) -> list[Message] | None:
        (outcome,) = outcomes
        if _submits(outcome):
            return None
        return [{"role": "user", "content": _observation(outcome)}]


def _action(reply: str) -> ToolCall | Malformed:
    if (said := spoken(reply)) is None:
        return Malformed(UNENDED)
    try:
        found = [block.body for block in blocks(said) if block.language == "bash"]
    except Unclosed:
        return Malformed(f"a block of three backticks in the reply has no end, and none of it was run: {_FORM}")
    if len(found) != 1:
        return Malformed(f"the reply has {len(found) or 'no'} blocks of bash, and none was run: {_FORM}")
    return ToolCall(SHELL_EXEC.name, {"command": found[0]})


def _submits(outcome: Outcome) -> bool:
    return outcome.exit_code == 0 and outcome.output.lstrip().partition("\n")[0].strip() == SUBMIT


def _observation(outcome: Outcome) -> str:
    """As mini-SWE-agent tells it."""
    if isinstance(outcome.action, Malformed):
        return outcome.text
    if outcome.exit_code is None:
        return f"<output>\n{outcome.text}\n</output>"
    text = outcome.text.removesuffix(f"Exit code: {outcome.exit_code}").rstrip("\n")
    return f"<returncode>{outcome.exit_code}</returncode>\n<output>\n{text}\n</output>"
