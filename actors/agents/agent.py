"""The interface of an agent: from a task to messages, from a reply to actions, from their outcomes to messages.

Pure and stateless: one object serves all episodes of a worker.  An episode calls ``opening_messages``, then
``parse_reply`` and ``format_outcomes`` turn by turn, until a reply is final or there are no more messages.  Text that
does not parse is an action too, so it is answered and counted, and never mistaken for a final reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from actors.agents.prompt import PromptTemplate
from actors.tokens.chat_messages import ChatMessage
from sandbox.tasks.task import Task
from sandbox.tools import Toolset


@dataclass(frozen=True, slots=True)
class AgentToolCall:
    """A call of a tool, as the model wrote it."""

    name: str
    arguments: dict[str, object]
    id: str = field(default="", compare=False)
    """The call's id, if the model wrote one."""


@dataclass(frozen=True, slots=True)
class MalformedAction:
    """Text that did not parse; the model is given the reason."""

    reason: str


AgentAction = AgentToolCall | MalformedAction


class ParsedReply(NamedTuple):
    """A reply as an agent understands it."""

    actions: Sequence[AgentAction]
    """The actions, in the order in which the model wrote them."""
    final: bool = False
    """The agent has finished once the actions are done."""

    @property
    def has_calls(self) -> bool:
        """True if it calls a tool."""
        return any(isinstance(action, AgentToolCall) for action in self.actions)

    @property
    def is_malformed(self) -> bool:
        """True if an action did not parse."""
        return any(isinstance(action, MalformedAction) for action in self.actions)


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """The outcome of one action."""

    action: AgentAction
    text: str
    """Text for the agent: the tool's result, or the error of the action."""
    output: str = ""
    """A command's whole output, before truncation."""
    exit_code: int | None = None
    ms: float = 0.0
    ran: bool = True
    """False for a call that was not run, because the time was up or the reply had too many."""


@runtime_checkable
class Agent(Protocol):
    """The interface of every agent, ours or a plugin's."""

    @property
    def tools(self) -> Toolset:
        """The tools that its actions may call in the sandbox."""
        ...

    @property
    def offered_tools(self) -> Toolset:
        """The tools that the model's chat template lists in the first prompt."""
        ...

    def opening_messages(self, task: Task) -> list[ChatMessage]:
        """Return the messages with which every episode of ``task`` begins."""
        ...

    def parse_reply(self, reply: str) -> ParsedReply:
        """Parse the text of a reply, thoughts included, without the end-of-turn token."""
        ...

    def format_outcomes(self, outcomes: Sequence[ActionOutcome]) -> list[ChatMessage] | None:
        """Return the messages about the outcome of each action of the reply, in order; None if the actions have
        finished the episode."""
        ...


def render_opening(prompt: PromptTemplate, task: Task, tools: Toolset) -> list[ChatMessage]:
    """Return the opening messages that ``prompt`` gives for ``task`` and ``tools``."""
    lines = (
        f"- {tool.name}({', '.join(each.name for each in tool.parameters)}): {tool.description}"
        for tool in tools.values()
    )
    filled = prompt.render(instruction=task.instruction, name=task.id, tools="\n".join(lines))
    first: list[ChatMessage] = [{"role": "system", "content": filled.system}] if filled.system else []
    return [*first, {"role": "user", "content": filled.user}]
