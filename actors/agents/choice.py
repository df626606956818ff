"""From settings to an agent."""

from __future__ import annotations

from actors.agents.agent import Agent
from actors.agents.hermes import HermesAgent
from actors.agents.settings import AgentSettings, Tools
from sandbox.tools import OPENCLAW, SETA, SHELL_ONLY, Toolset

_TOOLSETS: dict[Tools, Toolset] = {Tools.SHELL_ONLY: SHELL_ONLY, Tools.SETA: SETA, Tools.OPENCLAW: OPENCLAW}


def agent_of(settings: AgentSettings) -> Agent:
    tools = _TOOLSETS[settings.toolset]
    return HermesAgent(tools, tools if settings.offered else {}, settings.system_prompt)
