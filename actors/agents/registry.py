"""Makes an agent from its spec, a built-in one or a plugin's.

A package adds one as an entry point of the group ``longshore.agents``: a callable that takes an :class:`AgentSpec` and
returns an :class:`Agent`.
"""

from __future__ import annotations

from actors.agents.agent import Agent
from actors.agents.bash_block import BashBlockAgent
from actors.agents.call_format import CallFormat
from actors.agents.code_interpreter import CodeInterpreterAgent
from actors.agents.harmony import HARMONY
from actors.agents.hermes import HERMES, HermesAgent
from actors.agents.json_action import JsonActionAgent
from actors.agents.keystrokes import KeystrokesAgent
from actors.agents.settings import AgentKind, AgentSettings, AgentSpec, CallFormatKind, ToolsetKind
from actors.agents.sglang_formats import detect_call_format, find_format_name
from actors.tokens.chat_format import load_tokenizer
from actors.tokens.chat_template import Tokenizer
from protocol.errors import UserError
from protocol.plugins import PluginGroup, load_plugin
from sandbox.tools import BROWSER, CODE_INTERPRETER, OPENCLAW, SETA, SHELL_ONLY, Toolset

_TOOLSETS: dict[ToolsetKind, Toolset] = {
    ToolsetKind.SHELL_ONLY: SHELL_ONLY,
    ToolsetKind.SETA: SETA,
    ToolsetKind.OPENCLAW: OPENCLAW,
    ToolsetKind.BROWSER: BROWSER,
}


def make_agent(spec: AgentSpec, calls: CallFormat = HERMES) -> Agent:
    """Return the agent of ``spec``, whose model writes calls in the format ``calls``.

    Raises UserError for an unknown kind or a plugin that returns no agent."""
    kind = spec.settings.kind
    return _make_builtin(AgentKind(kind), spec, calls) if kind in list(AgentKind) else _make_plugin(spec)


def load_call_format(settings: AgentSettings, model_path: str) -> CallFormat:
    """Return the format in which the model in ``model_path`` calls tools.  Raises UserError as ``detect_call_format``
    and ``load_tokenizer``."""
    if settings.format is CallFormatKind.HERMES:
        return HERMES
    return find_call_format(settings, load_tokenizer(model_path))


def find_call_format(settings: AgentSettings, tokenizer: Tokenizer) -> CallFormat:
    """Return the same for a tokenizer that is loaded."""
    return HERMES if settings.format is CallFormatKind.HERMES else detect_call_format(tokenizer)


def require_readable_replies(settings: AgentSettings, tokenizer: Tokenizer) -> None:
    """Raise UserError for a model whose replies have a form that a built-in agent does not read."""
    if settings.format is CallFormatKind.AUTO or settings.kind not in list(AgentKind):
        return
    if find_format_name(tokenizer) == HARMONY.name:
        raise UserError(
            f"this model writes its replies in channels (gpt-oss), which agent.kind = '{settings.kind}' does not read "
            f"with agent.format = '{settings.format}': set agent.kind = 'hermes', agent.format = 'auto'"
        )


def _make_builtin(kind: AgentKind, spec: AgentSpec, calls: CallFormat) -> Agent:
    prompt, settings, tools = spec.prompt, spec.settings, _TOOLSETS[spec.settings.toolset]
    match kind:
        case AgentKind.HERMES:
            return HermesAgent(prompt, tools, tools if settings.tools else {}, calls)
        case AgentKind.BASH:
            return BashBlockAgent(prompt)
        case AgentKind.JSON:
            return JsonActionAgent(prompt, tools)
        case AgentKind.KEYSTROKES:
            return KeystrokesAgent(prompt)
        case AgentKind.CODE_INTERPRETER:
            return CodeInterpreterAgent(prompt, CODE_INTERPRETER if settings.tools else {}, calls)


def _make_plugin(spec: AgentSpec) -> Agent:
    make = load_plugin(PluginGroup.AGENTS, spec.settings.kind)
    made: object = make(spec) if callable(make) else None
    if not isinstance(made, Agent):
        raise UserError(
            f"the agent '{spec.settings.kind}' is not an agent: its entry point has to be a callable that takes an "
            "AgentSpec and returns what actors/agents/agent.py describes (docs/plugins.md)"
        )
    return made
