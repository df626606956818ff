"""Which agent, and how it is told to work.  Light: the configuration reads it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Tools(StrEnum):
    """What an agent that calls tools by their names may call."""

    SHELL_ONLY = "shell_only"
    """One tool, one shell; a command that runs out of its time is killed."""
    SETA = "seta"
    """SETA's six: named sessions, which go on in the background."""
    OPENCLAW = "openclaw"
    """OpenClaw's four of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    toolset: Tools = Tools.SHELL_ONLY
    offered: bool = True
    """The first prompt says, by the model's chat template, which tools there are."""
    system_prompt: str
