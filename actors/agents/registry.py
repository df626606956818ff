"""Makes an agent from its spec, a built-in one or a plugin's.

A package adds one as an entry point of the group ``longshore.agents``: a callable that takes an :class:`AgentSpec` and
returns an :class:`Agent`.
"""

from __future__ import annotations

from actors.agents.agent import Agent
from actors.agents.bash_block import BashBlockAgent
from actors.agents.code_interpreter import CodeInterpreterAgent
from actors.agents.hermes import HermesAgent
from actors.agents.json_action import JsonActionAgent
from actors.agents.keystrokes import KeystrokesAgent
from actors.agents.settings import AgentKind, AgentSpec, ToolsetKind
from protocol.errors import UserError
from protocol.plugins import PluginGroup, load_plugin
from sandbox.tools import CODE_INTERPRETER, OPENCLAW, SETA, SHELL_ONLY, Toolset

_TOOLSETS: dict[ToolsetKind, Toolset] = {
    ToolsetKind.SHELL_ONLY: SHELL_ONLY,
    ToolsetKind.SETA: SETA,
    ToolsetKind.OPENCLAW: OPENCLAW,
}


def make_agent(spec: AgentSpec) -> Agent:
    """Return the agent of ``spec``.  Raises UserError for an unknown kind or a plugin that returns no agent."""
    kind = spec.settings.kind
    return _make_builtin(AgentKind(kind), spec) if kind in list(AgentKind) else _make_plugin(spec)


def _make_builtin(kind: AgentKind, spec: AgentSpec) -> Agent:
    prompt, settings, tools = spec.prompt, spec.settings, _TOOLSETS[spec.settings.toolset]
    match kind:
        case AgentKind.HERMES:
            return HermesAgent(prompt, tools, tools if settings.tools else {})
        case AgentKind.BASH:
            return BashBlockAgent(prompt)
        case AgentKind.JSON:
            return JsonActionAgent(prompt, tools)
        case AgentKind.KEYSTROKES:
            return KeystrokesAgent(prompt)
        case AgentKind.CODE_INTERPRETER:
            return CodeInterpreterAgent(prompt, CODE_INTERPRETER if settings.tools else {})


def _make_plugin(spec: AgentSpec) -> Agent:
    make = load_plugin(PluginGroup.AGENTS, spec.settings.kind)
    made: object = make(spec) if callable(make) else None
    if not isinstance(made, Agent):
        raise UserError(
            f"the agent '{spec.settings.kind}' is not an agent: its entry point has to be a callable that takes an "
            "AgentSpec and returns what actors/agents/agent.py describes (docs/plugins.md)"
        )
    return made
