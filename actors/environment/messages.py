"""What a worker and an environment service say to each other: one model for each request and reply, and what both do
with them.  The OpenAPI document is made of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from actors.agents.settings import AgentSettings
from actors.rewards.episode_result import ModelTurn
from actors.rollout.episode import EpisodeGrade, EpisodeSettings
from protocol.trajectory import EpisodeStatus, RolloutRequest
from sandbox.http import failures
from sandbox.http.messages import ApiMessage, Name, OkReply, Seconds

MAX_WAIT_S = 60.0
"""A request for an outcome is answered by then, whatever has become of the episode."""
MODEL_FAILED, OVERRUN, UNKNOWN_EPISODE = "MODEL_FAILED", "STAGE_OVERRUN", "UNKNOWN_EPISODE"
REUSED_ID = failures.REUSED_ID
EpisodeId = Annotated[str, Field(min_length=1, max_length=200, description="Names the episode; the client's choice.")]
NonNegativeCount = Annotated[int, Field(ge=0)]


class EpisodeLimits(ApiMessage):
    """Of one episode: :class:`actors.rollout.episode.EpisodeSettings`, and what a worker's own settings say of sandboxes."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    max_turns: Annotated[int, Field(ge=1)]
    max_malformed: Annotated[int, Field(ge=1)]
    max_new_tokens: Annotated[int, Field(ge=1)]
    context_tokens: Annotated[int, Field(ge=1)]
    temperature: Annotated[float, Field(ge=0)]
    nominal_tokens_per_s: Annotated[float, Field(gt=0)]
    time_limit_s: Seconds
    observation_tokens: NonNegativeCount = 0
    max_calls: NonNegativeCount = 0
    reply_s: Annotated[Seconds, Field(description="Longest wait for a reply of the policy's.")]
    acquire_s: Seconds
    command_s: Seconds
    grade_s: Seconds
    cleanup_s: Seconds
    observation_chars: Annotated[int, Field(ge=1)]

    def to_episode_settings(self) -> EpisodeSettings:
        """As an agent's loop has them."""
        return EpisodeSettings(
            max_turns=self.max_turns,
            max_malformed=self.max_malformed,
            max_new_tokens=self.max_new_tokens,
            context_tokens=self.context_tokens,
            temperature=self.temperature,
            generate_deadline_s=self.reply_s,
            engine_restart_s=0.0,
            nominal_tokens_per_s=self.nominal_tokens_per_s,
            time_limit_s=self.time_limit_s,
            observation_tokens=self.observation_tokens,
            max_calls=self.max_calls,
        )


@dataclass(frozen=True, slots=True)
class SandboxTimeouts:
    """What a worker allows a sandbox, wherever that is."""

    acquire_s: float
    command_s: float
    grade_s: float
    cleanup_s: float
    observation_chars: int
    longest_s: float
    """Of an episode whose ticket has no deadline."""


def make_episode_limits(settings: EpisodeSettings, request: RolloutRequest, times: SandboxTimeouts) -> EpisodeLimits:
    return EpisodeLimits(
        max_turns=settings.max_turns,
        max_malformed=settings.max_malformed,
        max_new_tokens=settings.max_new_tokens,
        context_tokens=settings.context_tokens,
        temperature=settings.sampling_temperature(request),
        nominal_tokens_per_s=settings.nominal_tokens_per_s,
        time_limit_s=settings.time_limit_s,
        observation_tokens=settings.observation_tokens,
        max_calls=settings.max_calls,
        reply_s=settings.generate_deadline_s + settings.engine_restart_s,
        acquire_s=times.acquire_s,
        command_s=times.command_s,
        grade_s=times.grade_s,
        cleanup_s=times.cleanup_s,
        observation_chars=times.observation_chars,
    )


class PolicyAddress(ApiMessage):
    """Where the policy answers, by OpenAI's chat API."""

    url: Annotated[str, Field(max_length=2048, pattern="^https?://", description="Before /chat/completions.")]
    key: Annotated[str, Field(max_length=1024)] = ""
    name: Name


class BeginEpisode(ApiMessage):
    """An episode to begin."""

    episode: EpisodeId
    task: Annotated[dict[str, Any], Field(description="A whole task: sandbox/http/task_codec.py.")]
    agent: Annotated[dict[str, Any], Field(description="actors.agents.settings.AgentSettings.")]
    limits: EpisodeLimits
    model: PolicyAddress
    seed: int = 0
    vanished_before: Annotated[bool, Field(description="An earlier attempt's sandbox vanished.")] = False
    deadline_s: Annotated[Seconds, Field(description="From now on; an episode that goes on longer is ended.")]


class EpisodeBegun(OkReply):
    reused: Annotated[bool, Field(description="It had begun before.")]
    ttl_s: Annotated[float, Field(description="It ends unless it is asked for within this time, again and again.")]


class OutcomeQuery(ApiMessage):
    episode: EpisodeId
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 20.0


class OutcomeReply(OkReply):
    outcome: Annotated[dict[str, Any] | None, Field(description="None while it goes on.")] = None


class CancelEpisode(ApiMessage):
    episode: EpisodeId


class EpisodeCancelled(OkReply):
    found: bool


class EpisodeSlots(BaseModel):
    slots: int
    running: int
    draining: bool


class EnvironmentServiceStatus(OkReply):
    environment: EpisodeSlots


@dataclass(frozen=True, slots=True)
class ToolEvent:
    """What a person sees of a tool's call."""

    kind: Literal["call", "result"]
    tool: str
    text: str


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """What an episode came to, but for the tokens, which its policy's side has."""

    status: EpisodeStatus
    graded: EpisodeGrade
    error: str
    turns: tuple[ModelTurn, ...]
    shown: tuple[ToolEvent, ...]
    timings_ms: dict[str, float]
    """``acquire`` and ``tool``."""


OUTCOME_ADAPTER = TypeAdapter(EpisodeOutcome)
AGENT_ADAPTER = TypeAdapter(AgentSettings)
