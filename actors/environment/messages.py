"""The messages of workers and environment services: one model for each request and reply.

The OpenAPI document is generated from these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from actors.agents.settings import AgentSpec
from actors.rewards.episode_result import ModelTurn
from actors.rollout.settings import EpisodeSettings
from actors.rollout.terminal import EpisodeGrade
from protocol.trajectory import EpisodeStatus
from sandbox.http import failures
from sandbox.http.body_budget import SMALL_BYTES
from sandbox.http.messages import ApiMessage, Name, OkReply, Seconds

MAX_WAIT_S = 60.0
"""Longest wait of a request for an outcome."""
MODEL_FAILED, OVERRUN, UNKNOWN_EPISODE = "MODEL_FAILED", "STAGE_OVERRUN", "UNKNOWN_EPISODE"
REUSED_ID = failures.REUSED_ID
EpisodeId = Annotated[str, Field(min_length=1, max_length=200, description="The episode's name, chosen by the client.")]


class EpisodeLimits(ApiMessage):
    """The limits of one episode: its settings, and the timeouts of a worker around it."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    settings: EpisodeSettings
    temperature: Annotated[float, Field(ge=0, description="Sampling temperature of this episode.")]
    reply_s: Annotated[Seconds, Field(description="Longest wait for a reply of the policy.")]
    acquire_s: Seconds
    command_s: Seconds
    grade_s: Seconds
    cleanup_s: Seconds


class PolicyAddress(ApiMessage):
    """Address of the policy's OpenAI-compatible chat API."""

    url: Annotated[str, Field(max_length=2048, pattern="^https?://", description="Base URL, before /chat/completions.")]
    key: Annotated[str, Field(max_length=1024)] = ""
    name: Name


class StartEpisodeRequest(ApiMessage):
    """Request to begin an episode."""

    episode: EpisodeId
    task: Annotated[dict[str, Any], Field(description="A whole task, encoded by sandbox/http/task_codec.py.")]
    agent: Annotated[dict[str, Any], Field(description="actors.agents.settings.AgentSpec.")]
    limits: EpisodeLimits
    model: PolicyAddress
    seed: int = 0
    vanished_before: Annotated[bool, Field(description="An earlier attempt's sandbox vanished.")] = False
    deadline_s: Annotated[Seconds, Field(description="Seconds after which the episode is ended.")]


class StartEpisodeResponse(OkReply):
    """Reply: the episode runs."""

    reused: Annotated[bool, Field(description="True if it had begun before.")]
    ttl_s: Annotated[float, Field(description="Seconds without a poll after which the episode is ended.")]


class EpisodeOutcomeRequest(ApiMessage):
    """Request to wait for the outcome of an episode."""

    most_bytes = SMALL_BYTES
    episode: EpisodeId
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 20.0


class EpisodeOutcomeResponse(OkReply):
    """The outcome, if the episode has ended."""

    outcome: Annotated[dict[str, Any] | None, Field(description="None while it runs.")] = None


class CancelEpisodeRequest(ApiMessage):
    """Request to end an episode."""

    most_bytes = SMALL_BYTES
    episode: EpisodeId


class CancelEpisodeResponse(OkReply):
    """Reply: ``found`` is false if there was no such episode."""

    found: bool


class EpisodeSlots(BaseModel):
    """Number of episodes that a service runs, and may run."""

    slots: int
    running: int
    draining: bool


class EnvironmentServiceStatus(OkReply):
    """The status of an environment service."""

    environment: EpisodeSlots


@dataclass(frozen=True, slots=True)
class ToolEvent:
    """A tool call or its result, for display."""

    kind: Literal["call", "result"]
    tool: str
    text: str


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """The result of an episode without its tokens, which the gateway has."""

    status: EpisodeStatus
    grade: EpisodeGrade
    error: str
    turns: tuple[ModelTurn, ...]
    tool_events: tuple[ToolEvent, ...]
    timings_ms: dict[str, float]
    """Wall milliseconds of the stages ``acquire`` and ``tool``."""


OUTCOME_ADAPTER = TypeAdapter(EpisodeOutcome)
AGENT_ADAPTER = TypeAdapter(AgentSpec)
