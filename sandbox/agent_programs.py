"""Folders with programs of agents, which a pool mounts into its sandboxes."""

from __future__ import annotations

from typing import NamedTuple

AGENT_PROGRAMS_FOLDER = "harnesses"
"""Folder of longshore's home whose folders are programs of agents."""


class AgentPrograms(NamedTuple):
    """Programs of an agent that is not the image's, and what they need themselves in addition to a task's limits."""

    folder: str
    """Path in longshore's home on the pool's machine."""
    memory_mb: int
    pids: int


BROWSER_PROGRAMS = AgentPrograms(f"{AGENT_PROGRAMS_FOLDER}/chromium-1", memory_mb=768, pids=300)
"""Chromium (:mod:`sandbox.browser`); the number changes with the folder's layout."""
