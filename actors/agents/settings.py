"""Which agent, and how it is told to work.  Light: the configuration reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from actors.agents.prompt import PromptTemplate

AgentOption: TypeAlias = str | int | float | bool


class AgentKind(StrEnum):
    """Those of our own.  A package may add others (:mod:`protocol.plugins`)."""

    HERMES = "hermes"
    """Calls tools, as Qwen's models write it."""
    BASH = "bash"
    """One block of bash in each reply; a command submits."""
    JSON = "json"
    """One action in each reply, as a JSON object."""
    KEYSTROKES = "keystrokes"
    """Types into a terminal and reads its screen."""
    CODE_INTERPRETER = "code_interpreter"
    """Calls one tool, which runs Python."""


class ThinkingMode(StrEnum):
    """Whether the model thinks before it acts."""

    TEMPLATE = "template"
    """As its chat template has it."""
    ON = "on"
    """The template is told ``enable_thinking = true``."""
    OFF = "off"
    """The template is told ``enable_thinking = false``: Qwen3's puts an empty thought before each reply."""
    NO_THINK = "no_think"
    """The system message ends with ``/no_think``, which Qwen3's models were taught."""

    @property
    def template_argument(self) -> bool | None:
        """What the template is told."""
        return {ThinkingMode.ON: True, ThinkingMode.OFF: False}.get(self)


class HistoryMode(StrEnum):
    """What a turn's prompt holds of the turns before."""

    WHOLE = "whole"
    """Every token, as it was sampled; the episode is one segment."""
    INDIVIDUAL = "individual"
    """What the chat template makes of all messages; each turn is a sample of its own, as SETA has it."""
    DYNAMIC = "dynamic"
    """The same without its middle where it is too long, as OpenClaw's ``--dynamic_history`` has it."""


class ToolsetKind(StrEnum):
    """What an agent that calls tools by their names may call."""

    SHELL_ONLY = "shell_only"
    """One tool, one shell; a command that runs out of its time is killed."""
    SETA = "seta"
    """SETA's six: named sessions, which go on in the background."""
    OPENCLAW = "openclaw"
    """OpenClaw's four of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    kind: str = AgentKind.HERMES
    """An :class:`AgentKind`, or one that a package adds."""
    prompt: PromptTemplate
    toolset: ToolsetKind = ToolsetKind.SHELL_ONLY
    offered: bool = True
    """The first prompt says, by the model's chat template, which tools there are."""
    thinking: ThinkingMode = ThinkingMode.TEMPLATE
    options: Mapping[str, AgentOption] = field(default_factory=dict[str, AgentOption])
    """For agents that packages add: their own keys."""
