"""Exactly one block of bash in each reply, as in mini-SWE-agent and as SWE-SYNTH requires.

Everything else in a reply is ignored.  No text ends the episode, only a command whose output begins with
:data:`SUBMIT` and which exited with 0.  An agent that fakes that only ends its own episode early, so the exit code that
the agent's shell reports is good enough.  https://github.com/SWE-agent/mini-swe-agent
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from actors.agents.agent import ActionOutcome, AgentToolCall, MalformedAction, ParsedReply, render_opening
from actors.agents.fenced_blocks import UnclosedBlockError, parse_fenced_blocks
from actors.agents.prompt import PromptTemplate
from actors.tokens.chat_format import ChatMessage
from actors.tokens.reasoning import UNCLOSED_REASONING, strip_reasoning
from sandbox.tasks.task import Task
from sandbox.tools import SHELL_ONLY, Toolset
from sandbox.tools.shell_only import SHELL_EXEC

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""Text that an agent echoes when it is done in mini-swe-agent's harnesses, for example affinetes' SWE-SYNTH."""
_FORM = "write exactly one, which begins with a line ```bash and ends with a line ```"


@dataclass(frozen=True, slots=True)
class BashBlockAgent:
    """Runs the one block of bash of each reply."""

    prompt: PromptTemplate

    @property
    def tools(self) -> Toolset:
        return SHELL_ONLY

    @property
    def offered_tools(self) -> Toolset:
        return {}

    def opening_messages(self, task: Task) -> list[ChatMessage]:
        return render_opening(self.prompt, task, self.tools)

    def parse_reply(self, reply: str) -> ParsedReply:
        return ParsedReply([_action(reply)])

    def format_outcomes(self, outcomes: Sequence[ActionOutcome]) -> list[ChatMessage] | None:
        (outcome,) = outcomes
        if _submits(outcome):
            return None
        return [{"role": "user", "content": _observation(outcome)}]


def _action(reply: str) -> AgentToolCall | MalformedAction:
    if (text := strip_reasoning(reply)) is None:
        return MalformedAction(UNCLOSED_REASONING)
    try:
        found = [block.body for block in parse_fenced_blocks(text) if block.language == "bash"]
    except UnclosedBlockError:
        return MalformedAction(f"a block of three backticks in the reply has no end, and none of it was run: {_FORM}")
    if len(found) != 1:
        return MalformedAction(f"the reply has {len(found) or 'no'} blocks of bash, and none was run: {_FORM}")
    return AgentToolCall(SHELL_EXEC.name, {"command": found[0]})


def _submits(outcome: ActionOutcome) -> bool:
    return outcome.exit_code == 0 and outcome.output.lstrip().partition("\n")[0].strip() == SUBMIT


def _observation(outcome: ActionOutcome) -> str:
    """Format an outcome as mini-SWE-agent does."""
    if isinstance(outcome.action, MalformedAction):
        return outcome.text
    if outcome.exit_code is None:
        return f"<output>\n{outcome.text}\n</output>"
    text = outcome.text.removesuffix(f"Exit code: {outcome.exit_code}").rstrip("\n")
    return f"<returncode>{outcome.exit_code}</returncode>\n<output>\n{text}\n</output>"
