"""A trajectory as it was recorded, whether by a run or by an evaluation: what was said, what was told, and the verdict.

Pure.  What an agent did is what it reads in its replies, so that is not kept beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from actors.agents.agent import Agent, Malformed, Reading
from actors.agents.chat import Message
from launch.config import RunConfig
from launch.evaluate.attempts import Verdict
from launch.evaluate.setting import Setting
from protocol.errors import UserError

_CUT = "the reply was cut"

Wanted = Callable[[str, float], bool]
"""Whether a trajectory of this task and reward is."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A reply's tokens, where they are known."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    prompt_tokens: int
    """Of what it answers."""


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    """As the agent read it."""
    told: tuple[Message, ...] | None = None
    """What the model read next; None where nothing was kept of that."""
    ran: int | None = None
    """Calls that were run; None where that is not known."""
    exit_code: int | None = None
    """Of the last of them, as the agent's shell told it."""
    sampled: Sampled | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    name: str
    """As :mod:`launch.recorded.named` finds it."""
    task: str
    opening: tuple[Message, ...]
    replies: tuple[Reply, ...]
    verdict: Verdict | None
    """None where infrastructure failed it."""
    prompt_tokens: int = 0
    """Of all prompts together."""
    completion_tokens: int = 0

    @property
    def messages(self) -> list[Message]:
        """The conversation, from the first prompt to what was told last."""
        said = [*self.opening]
        for reply in self.replies:
            said.append({"role": "assistant", "content": reply.text})
            said += reply.told or ()
        return said


@dataclass(frozen=True, slots=True)
class Origin:
    """What a source's trajectories have in common."""

    source: str
    """The run's directory, or the evaluation's folder."""
    model: str
    agent: Agent
    setting: Setting
    """With which they were made."""
    facts: Mapping[str, str]
    """For people."""
    shortened: Callable[[str, int], str]
    """As of :class:`actors.policy.Policy`, by the same tokenizer."""


def require_own_agent(source: Path, config: RunConfig) -> None:
    """Raises UserError where a program acted whose actions nobody here can read."""
    if config.agent.harness:
        raise UserError(
            f"{source} was made by a harness ({config.agent.harness}), whose actions are its own: only what agents of "
            "ours and of packages did can be replayed and exported, --set agent.harness= in the command that makes it"
        )


def reading_of(agent: Agent, reply: Reply, *, last: bool) -> Reading:
    """The reply as its agent understood it.  One that seems final, and was answered all the same, had been cut."""
    reading = agent.read(reply.text)
    return Reading([Malformed(_CUT)]) if reading.final and (reply.told or not last) else reading
