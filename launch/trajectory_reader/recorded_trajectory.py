"""A recorded trajectory of a run or an evaluation: the messages, the sampled tokens and the verdict.  Pure.

Actions are not stored: the agent parses them from its replies again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from actors.agents.agent import Agent, MalformedAction, ParsedReply
from actors.tokens.chat_messages import ChatMessage
from launch.config import RunConfig
from protocol.errors import UserError
from protocol.evaluation import AttemptVerdict

_CUT = "the reply was cut"

TrajectoryPredicate = Callable[[str, float], bool]
"""Selects trajectories by task and reward."""


@dataclass(frozen=True, slots=True)
class RecordedTokens:
    """The sampled tokens of a reply."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    prompt_tokens: int
    """Number of prompt tokens before the reply."""


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """A reply of the model, and the observation that followed."""

    text: str
    """The text that the agent parsed."""
    observation: tuple[ChatMessage, ...] | None = None
    """Messages that the model read next; None if they were not kept."""
    calls_run: int | None = None
    """Number of tool calls that ran; None if unknown."""
    exit_code: int | None = None
    """Exit code of the last call, as the agent's shell reported it."""
    sampled: RecordedTokens | None = None
    """None if the tokens are not known."""


@dataclass(frozen=True, slots=True)
class RecordedTrajectory:
    name: str
    """The name by which :mod:`launch.trajectory_reader.trajectory_lookup` finds it."""
    task: str
    opening: tuple[ChatMessage, ...]
    replies: tuple[RecordedReply, ...]
    verdict: AttemptVerdict | None
    """None if the infrastructure failed the attempt."""
    prompt_tokens: int = 0
    """Number of tokens of all prompts together."""
    completion_tokens: int = 0

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation, from the first prompt to the last observation."""
        messages = [*self.opening]
        for reply in self.replies:
            messages.append({"role": "assistant", "content": reply.text})
            messages += reply.observation or ()
        return messages


@dataclass(frozen=True, slots=True)
class TrajectoryOrigin:
    """The facts that all trajectories of one source share."""

    source: str
    """Path of the run's directory or of the evaluation's folder."""
    model: str
    agent: Agent
    config: RunConfig
    """The configuration with which the trajectories were made."""
    facts: Mapping[str, str]
    """Names of the source, for people."""
    shorten: Callable[[str, int], str]
    """Truncates a text to a number of tokens, as :class:`actors.rollout.policy.Policy` did."""


def require_native_agent(source: Path, config: RunConfig) -> None:
    """Raise UserError if the trajectories come from a harness, whose actions cannot be parsed here."""
    if config.agent.harness:
        raise UserError(
            f"{source} was made by a harness ({config.agent.harness}), whose actions cannot be replayed or exported: "
            "make it again with a native agent, --set agent.harness="
        )


def read_reply(agent: Agent, reply: RecordedReply, *, last: bool) -> ParsedReply:
    """Return the reply as its agent parsed it.  A final reply that got an observation nevertheless had been cut off."""
    parsed = agent.parse_reply(reply.text)
    return ParsedReply([MalformedAction(_CUT)]) if parsed.final and (reply.observation or not last) else parsed
