"""A trajectory as it was recorded, whether by a run or by an evaluation: what was said, what was told, and the verdict.

Pure.  What an agent did is what it reads in its replies, so that is not kept beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from actors.agents.agent import Agent, MalformedAction, ParsedReply
from actors.tokens.chat_format import ChatMessage
from launch.config import RunConfig
from launch.evaluation.attempts import AttemptVerdict
from launch.evaluation.results.evaluation_settings import EvaluationSettings
from protocol.errors import UserError

_CUT = "the reply was cut"

TrajectoryPredicate = Callable[[str, float], bool]
"""Whether a trajectory of this task and reward is."""


@dataclass(frozen=True, slots=True)
class RecordedTokens:
    """A reply's tokens, where they are known."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    prompt_tokens: int
    """Of what it answers."""


@dataclass(frozen=True, slots=True)
class RecordedReply:
    text: str
    """As the agent read it."""
    observation: tuple[ChatMessage, ...] | None = None
    """What the model read next; None where nothing was kept of that."""
    calls_run: int | None = None
    """Calls that were run; None where that is not known."""
    exit_code: int | None = None
    """Of the last of them, as the agent's shell told it."""
    sampled: RecordedTokens | None = None


@dataclass(frozen=True, slots=True)
class RecordedTrajectory:
    name: str
    """As :mod:`launch.trajectory_reader.lookup` finds it."""
    task: str
    opening: tuple[ChatMessage, ...]
    replies: tuple[RecordedReply, ...]
    verdict: AttemptVerdict | None
    """None where infrastructure failed it."""
    prompt_tokens: int = 0
    """Of all prompts together."""
    completion_tokens: int = 0

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation, from the first prompt to what was told last."""
        said = [*self.opening]
        for reply in self.replies:
            said.append({"role": "assistant", "content": reply.text})
            said += reply.observation or ()
        return said


@dataclass(frozen=True, slots=True)
class TrajectoryOrigin:
    """What a source's trajectories have in common."""

    source: str
    """The run's directory, or the evaluation's folder."""
    model: str
    agent: Agent
    evaluation_settings: EvaluationSettings
    """With which they were made."""
    facts: Mapping[str, str]
    """For people."""
    shorten: Callable[[str, int], str]
    """As of :class:`actors.rollout.policy.Policy`, by the same tokenizer."""


def require_native_agent(source: Path, config: RunConfig) -> None:
    """Raises UserError where a program acted whose actions nobody here can read."""
    if config.agent.harness:
        raise UserError(
            f"{source} was made by a harness ({config.agent.harness}), whose actions are its own: only what agents of "
            "ours and of packages did can be replayed and exported, --set agent.harness= in the command that makes it"
        )


def read_reply(agent: Agent, reply: RecordedReply, *, last: bool) -> ParsedReply:
    """The reply as its agent understood it.  One that seems final, and was answered all the same, had been cut."""
    reading = agent.parse_reply(reply.text)
    return ParsedReply([MalformedAction(_CUT)]) if reading.final and (reply.observation or not last) else reading
