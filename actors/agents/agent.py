"""What an agent is: from a task to messages, from a reply to actions, from what became of them to messages again.

Pure, and without a state of its own: one object serves all episodes of a worker.  An episode asks it for its
``opening``, then to ``read`` and to ``tell`` turn by turn, until a reading is final or there is nothing to tell.  What
does not parse is an action too, so that it is answered and counted, and never taken for a last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from actors.agents.chat import Message
from actors.agents.prompt import Prompt
from sandbox.tasks.task import Task
from sandbox.tools import Toolset


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: dict[str, object]


@dataclass(frozen=True, slots=True)
class Malformed:
    """What did not parse, and why: the model is told."""

    reason: str


Action = ToolCall | Malformed


class Reading(NamedTuple):
    """A reply, as an agent understands it."""

    actions: Sequence[Action]
    """In the order in which the model wrote them."""
    final: bool = False
    """The agent has finished, once they are done."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one action."""

    action: Action
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
    def offered(self) -> Toolset:
        """Those of them that the model's chat template names in the first prompt."""
        ...

    def opening(self, task: Task) -> list[Message]:
        """The messages that every episode of ``task`` begins with."""
        ...

    def read(self, reply: str) -> Reading:
        """``reply`` is the text of what was sampled, thoughts included, without the turn's end."""
        ...

    def tell(self, outcomes: Sequence[Outcome]) -> list[Message] | None:
        """What the model reads next: of each action of its reply, in order, what became of it.  None where the agent
        has finished by what it did."""
        ...


def opening(prompt: Prompt, task: Task, tools: Toolset) -> list[Message]:
    """``prompt`` with what it says of ``task`` and ``tools``."""
    lines = (
        f"- {tool.name}({', '.join(each.name for each in tool.parameters)}): {tool.description}"
        for tool in tools.values()
    )
    filled = prompt.filled(instruction=task.instruction, name=task.id, tools="\n".join(lines))
    first: list[Message] = [{"role": "system", "content": filled.system}] if filled.system else []
    return [*first, {"role": "user", "content": filled.user}]
