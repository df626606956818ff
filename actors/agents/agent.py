"""What an agent is: from a task to messages, from a reply to actions, from what became of them to messages again.

Pure, and without a state of its own: one object serves all episodes of a worker.  An episode asks it for its
``opening``, then to ``read`` and to ``tell`` turn by turn, until a reading is final or there is nothing to tell.  What
does not parse is an action too, so that it is answered and counted, and never taken for a last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from actors.agents.prompt import PromptTemplate
from actors.tokens.chat_format import ChatMessage
from sandbox.tasks.task import Task
from sandbox.tools import Toolset


@dataclass(frozen=True, slots=True)
class AgentToolCall:
    name: str
    arguments: dict[str, object]


@dataclass(frozen=True, slots=True)
class MalformedAction:
    """What did not parse, and why: the model is told."""

    reason: str


AgentAction = AgentToolCall | MalformedAction


class ParsedReply(NamedTuple):
    """A reply, as an agent understands it."""

    actions: Sequence[AgentAction]
    """In the order in which the model wrote them."""
    final: bool = False
    """The agent has finished, once they are done."""


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """What became of one action."""

    action: AgentAction
    text: str
    """For the agent: what the tool answered, or what is wrong with the action."""
    output: str = ""
    """What a command printed, before anything was cut from it."""
    exit_code: int | None = None
    ms: float = 0.0
    ran: bool = True
    """A call that was not run, for want of time or for too many of them, is none."""


@runtime_checkable
class Agent(Protocol):
    @property
    def tools(self) -> Toolset:
        """What its actions may call, in the sandbox."""
        ...

    @property
    def offered_tools(self) -> Toolset:
        """Those of them that the model's chat template names in the first prompt."""
        ...

    def opening_messages(self, task: Task) -> list[ChatMessage]:
        """The messages that every episode of ``task`` begins with."""
        ...

    def parse_reply(self, reply: str) -> ParsedReply:
        """``reply`` is the text of what was sampled, thoughts included, without the turn's end."""
        ...

    def format_outcomes(self, outcomes: Sequence[ActionOutcome]) -> list[ChatMessage] | None:
        """What the model reads next: of each action of its reply, in order, what became of it.  None where the agent
        has finished by what it did."""
        ...


def render_opening(prompt: PromptTemplate, task: Task, tools: Toolset) -> list[ChatMessage]:
    """``prompt`` with what it says of ``task`` and ``tools``."""
    lines = (
        f"- {tool.name}({', '.join(each.name for each in tool.parameters)}): {tool.description}"
        for tool in tools.values()
    )
    filled = prompt.render(instruction=task.instruction, name=task.id, tools="\n".join(lines))
    first: list[ChatMessage] = [{"role": "system", "content": filled.system}] if filled.system else []
    return [*first, {"role": "user", "content": filled.user}]
