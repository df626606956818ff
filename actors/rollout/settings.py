"""An episode's settings: its part of ``[agent]``.

Imports nothing heavy, because the configuration imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from actors.agents.settings import HistoryMode
from actors.harnesses.catalog import PUBLISHED_HARNESSES
from actors.harnesses.published_harness import PublishedHarness
from protocol.settings import ConfigSection, CountInt, PositiveInt, Seconds
from protocol.trajectory import ReplyRole
from sandbox.agent_programs import AgentPrograms

_SAMPLING_KEYS = "sampling top_p top_k min_p frequency_penalty presence_penalty repetition_penalty logit_bias grammar"
REFUSED_SAMPLING_KEYS: Mapping[str, str] = dict.fromkeys(
    _SAMPLING_KEYS.split(),
    "it would falsify the recorded log-probabilities, which are taken before such options: leave it out "
    "(agent.temperature may be changed)",
)
"""Sampling options that other trainers have, and why training has none of them.

The engine returns log softmax(logits ÷ T) over the whole vocabulary.  With one of them set, that would not be the
distribution that the token was sampled from."""
_MIN_OBSERVATION_TOKENS = 32
"""The truncation marker takes about a third of these tokens."""


_PAGE_CHARS, _LEAST_PAGE_CHARS = 8000, 1000


def default_page_chars(context_tokens: object) -> int:
    """Return the default of ``observation_chars`` for an agent with a browser; ``context_tokens`` is as it was given,
    None if it was not."""
    tokens = context_tokens if isinstance(context_tokens, int) else 0
    return max(_LEAST_PAGE_CHARS, min(_PAGE_CHARS, tokens // 2))


class HarnessSettings(ConfigSection):
    """An agent process in the sandbox that calls the policy over HTTP."""

    harness: str = ""
    """Agent that is not longshore's and calls the policy through OpenAI's or Anthropic's API: the name of a published
    harness (`longshore harness list`), or a command that starts a program of the image; empty for a built-in agent.
    Its environment is described in docs/gateway.md."""
    harness_port: Annotated[int, Field(ge=1024, le=65535)] = 3129
    """Port on the sandbox's loopback where a harness reaches the policy."""
    train_auxiliary: bool = False
    """Train a harness's auxiliary replies too: titles, topics and checks, with which no request goes on
    (docs/gateway.md)."""
    train_discarded: bool = False
    """Train the replies too that a harness threw away, asking again with the same prompt."""

    @property
    def untrained_roles(self) -> frozenset[ReplyRole]:
        """Roles of replies that carry no loss."""
        is_trained = {ReplyRole.AUXILIARY: self.train_auxiliary, ReplyRole.DISCARDED: self.train_discarded}
        return frozenset(role for role, trained in is_trained.items() if not trained)

    @property
    def published_harness(self) -> PublishedHarness | None:
        """The published harness; None for a command or a built-in agent."""
        return PUBLISHED_HARNESSES.get(self.harness)

    @property
    def agent_programs(self) -> AgentPrograms | None:
        """The folder that a pool mounts for the published harness, with its limits; None without one."""
        if (harness := self.published_harness) is None:
            return None
        return AgentPrograms(harness.folder, harness.memory_mb, harness.pids)


class EpisodeSettings(ConfigSection):
    """Limits of one episode and how its history is shown to the model."""

    max_turns: PositiveInt = 4
    """Maximum number of model replies in one episode; an episode that uses the last without finishing ends as
    ``turn_limit``."""
    max_malformed: PositiveInt = 2
    """Unparseable actions in a row after which the episode ends as ``malformed_limit``."""
    max_new_tokens: PositiveInt = 96
    """Maximum number of tokens of one reply."""
    context_tokens: PositiveInt = 768
    """Maximum number of tokens of one episode, prompt and observations included.  An observation that would fill it
    ends the episode as ``context_limit`` and is not part of it.  The model must support 6 more positions, which SGLang
    reserves."""
    history: HistoryMode = HistoryMode.WHOLE
    """Form of earlier turns in each prompt: ``whole``, every token as it was sampled, in one sequence; ``individual``,
    all messages rendered again by the chat template in each turn (Qwen3's drops earlier thoughts); or ``dynamic``, like
    ``individual`` but without its middle if prompt and reply would not fit ``context_tokens``."""
    history_head: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Share of a dynamic history's tokens that are kept from its beginning when its middle is dropped."""
    trajectory_tokens: CountInt = 0
    """Maximum number of tokens of all segments of an episode together if ``history`` is not ``whole``; shared prefixes
    count once.  0 means ``max_turns`` × ``context_tokens``."""
    observation_chars: Annotated[int, Field(ge=80)] = 1000
    """Maximum number of characters of a command's output that the agent reads; longer output loses its middle.  With a
    browser (``toolset``) it is the length of one part of a page, by default 8000 or half of ``context_tokens``, if that
    is less, but at least 1000."""
    observation_tokens: CountInt = 0
    """Maximum number of tokens of one call's result, applied after ``observation_chars``; a longer result loses its
    middle.  0 means no such limit."""
    max_calls: CountInt = 0
    """Number of calls of one reply that are run, 0 for all; the others get an error as their result."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Sampling temperature in training.  Recorded log-probabilities are those at this temperature; evaluations sample
    at 1, or greedily."""
    time_limit_s: Seconds = 60.0
    """Limit of the agent's time: tool execution, and sampled tokens at ``nominal_tokens_per_s``.  Waiting for engine,
    pool or grader does not count."""
    nominal_tokens_per_s: Annotated[float, Field(gt=0)] = 50.0
    """Rate at which sampled tokens use up the agent's time, independent of the engine's speed."""

    picture_budget_mb: CountInt = 1024
    """MiB of pictures of the pages that a browser showed, which a machine keeps for a run or an evaluation; those of
    the oldest episodes are removed for newer ones.  0 records none."""

    @property
    def picture_budget_bytes(self) -> int:
        return self.picture_budget_mb << 20

    @property
    def total_tokens(self) -> int:
        """Maximum number of tokens of all segments of an episode together."""
        if self.history is HistoryMode.WHOLE:
            return self.context_tokens
        return self.trajectory_tokens or self.max_turns * self.context_tokens

    @model_validator(mode="after")
    def _check_token_limits(self) -> Self:
        if self.max_new_tokens >= self.context_tokens:
            raise ValueError(
                f"agent.max_new_tokens = {self.max_new_tokens} leaves no room for a prompt in agent.context_tokens = "
                f"{self.context_tokens}: set agent.max_new_tokens below it, {self.context_tokens // 4} for example"
            )
        if self.trajectory_tokens and (
            self.history is HistoryMode.WHOLE or self.trajectory_tokens < self.context_tokens
        ):
            raise ValueError(
                f"agent.trajectory_tokens = {self.trajectory_tokens} needs agent.history = 'individual' or 'dynamic' "
                f"and at least agent.context_tokens = {self.context_tokens}: set both, or leave it out"
            )
        if self.observation_tokens and not _MIN_OBSERVATION_TOKENS <= self.observation_tokens < self.context_tokens:
            raise ValueError(
                f"agent.observation_tokens = {self.observation_tokens} must be at least {_MIN_OBSERVATION_TOKENS} and "
                f"below agent.context_tokens = {self.context_tokens}: set it in between, or to 0 for no limit"
            )
        return self
