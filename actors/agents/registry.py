"""From settings to an agent, of our own or of a package's.

A package adds one as an entry point of the group ``longshore.agents``: a callable that takes :class:`AgentSettings` and
gives an :class:`Agent`.
"""

from __future__ import annotations

from actors.agents.agent import Agent
from actors.agents.bash_block import BashBlockAgent
from actors.agents.code_interpreter import CodeInterpreterAgent
from actors.agents.hermes import HermesAgent
from actors.agents.json_action import JsonActionAgent
from actors.agents.keystrokes import KeystrokesAgent
from actors.agents.settings import AgentKind, AgentSettings, ToolsetKind
from protocol.errors import UserError
from protocol.plugins import PluginGroup, load_plugin, plugin_names
from sandbox.tools import CODE_INTERPRETER, OPENCLAW, SETA, SHELL_ONLY, Toolset

_TOOLSETS: dict[ToolsetKind, Toolset] = {
    ToolsetKind.SHELL_ONLY: SHELL_ONLY,
    ToolsetKind.SETA: SETA,
    ToolsetKind.OPENCLAW: OPENCLAW,
}


def list_agent_kinds() -> list[str]:
    """All that there are."""
    return [*AgentKind, *plugin_names(PluginGroup.AGENTS)]


def make_agent(settings: AgentSettings) -> Agent:
    """Raises UserError for a kind that is not there, or that makes no agent."""
    return (
        _make_builtin(AgentKind(settings.kind), settings)
        if settings.kind in list(AgentKind)
        else _make_plugin(settings)
    )


def _make_builtin(kind: AgentKind, settings: AgentSettings) -> Agent:
    prompt, tools = settings.prompt, _TOOLSETS[settings.toolset]
    match kind:
        case AgentKind.HERMES:
            return HermesAgent(prompt, tools, tools if settings.offered else {})
        case AgentKind.BASH:
            return BashBlockAgent(prompt)
        case AgentKind.JSON:
            return JsonActionAgent(prompt, tools)
        case AgentKind.KEYSTROKES:
            return KeystrokesAgent(prompt)
        case AgentKind.CODE_INTERPRETER:
            return CodeInterpreterAgent(prompt, CODE_INTERPRETER if settings.offered else {})


def _make_plugin(settings: AgentSettings) -> Agent:
    make = load_plugin(PluginGroup.AGENTS, settings.kind)
    made: object = make(settings) if callable(make) else None
    if not isinstance(made, Agent):
        raise UserError(
            f"the agent '{settings.kind}' is no agent: its entry point has to be a callable that takes AgentSettings "
            "and gives what actors/agents/agent.py describes (docs/plugins.md)"
        )
    return made
