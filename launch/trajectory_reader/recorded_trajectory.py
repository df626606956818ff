"""A recorded trajectory of a run or an evaluation: what was said, what was told, and the verdict.

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
"""Decides by task and reward whether a trajectory is wanted."""


@dataclass(frozen=True, slots=True)
class RecordedTokens:
    """The tokens of a reply, if they are known."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    prompt_tokens: int
    """Tokens of the prompt that the reply answers."""


@dataclass(frozen=True, slots=True)
class RecordedReply:
    text: str
    """The reply's text as the agent read it."""
    observation: tuple[ChatMessage, ...] | None = None
    """The messages that the model read next; None if they were not kept."""
    calls_run: int | None = None
    """The number of calls that were run; None if unknown."""
    exit_code: int | None = None
    """The exit code of the last call, as the agent's shell reported it."""
    sampled: RecordedTokens | None = None


@dataclass(frozen=True, slots=True)
class RecordedTrajectory:
    name: str
    """The name by which :mod:`launch.trajectory_reader.lookup` finds it."""
    task: str
    opening: tuple[ChatMessage, ...]
    replies: tuple[RecordedReply, ...]
    verdict: AttemptVerdict | None
    """None if the infrastructure failed the attempt."""
    prompt_tokens: int = 0
    """The tokens of all prompts together."""
    completion_tokens: int = 0

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation, from the first prompt to the last observation."""
        said = [*self.opening]
        for reply in self.replies:
            said.append({"role": "assistant", "content": reply.text})
            said += reply.observation or ()
        return said


@dataclass(frozen=True, slots=True)
class TrajectoryOrigin:
    """What all trajectories of one source have in common."""

    source: str
    """The run's directory, or the evaluation's folder."""
    model: str
    agent: Agent
    evaluation_settings: EvaluationSettings
    """The configuration with which they were made."""
    facts: Mapping[str, str]
    """The source's name for people."""
    shorten: Callable[[str, int], str]
    """The shortening function of :class:`actors.rollout.policy.Policy`, by the same tokenizer."""


def require_native_agent(source: Path, config: RunConfig) -> None:
    """Raise UserError if the trajectory comes from an agent program whose actions cannot be read here."""
    if config.agent.harness:
        raise UserError(
            f"{source} was made by a harness ({config.agent.harness}), whose actions are its own: only what agents of "
            "ours and of packages did can be replayed and exported, --set agent.harness= in the command that makes it"
        )


def read_reply(agent: Agent, reply: RecordedReply, *, last: bool) -> ParsedReply:
    """Return the reply as its agent understood it.  A final reply that was answered all the same had been cut."""
    reading = agent.parse_reply(reply.text)
    return ParsedReply([MalformedAction(_CUT)]) if reading.final and (reply.observation or not last) else reading
