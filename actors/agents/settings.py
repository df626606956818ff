"""The agent's part of the section ``[agent]``.

Light: the configuration imports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from pydantic import Field, field_validator, model_validator

from actors.agents.prompt import PromptTemplate, load_agent_prompt
from protocol.cli.suggestions import did_you_mean
from protocol.plugins import PluginGroup, plugin_names
from protocol.settings import ConfigSection


class AgentKind(StrEnum):
    """The built-in agents.  A package may add others (:mod:`protocol.plugins`)."""

    HERMES = "hermes"
    """Tool calls as Qwen's models write them."""
    BASH = "bash"
    """One block of bash in each reply; a special command submits."""
    JSON = "json"
    """One action in each reply, as a JSON object."""
    KEYSTROKES = "keystrokes"
    """Types into a terminal and reads its screen."""
    CODE_INTERPRETER = "code_interpreter"
    """Calls one tool, which runs Python."""


class ThinkingMode(StrEnum):
    """Thinking of the model before it acts."""

    TEMPLATE = "template"
    """The chat template decides."""
    ON = "on"
    """The template gets ``enable_thinking = true``."""
    OFF = "off"
    """The template gets ``enable_thinking = false``: Qwen3's puts an empty thought before each reply."""
    NO_THINK = "no_think"
    """The system message ends with ``/no_think``, which Qwen3's models are trained to follow."""

    @property
    def template_argument(self) -> bool | None:
        """The value of the template's ``enable_thinking``; None to leave it out."""
        return {ThinkingMode.ON: True, ThinkingMode.OFF: False}.get(self)


class HistoryMode(StrEnum):
    """Form of earlier turns in a turn's prompt."""

    WHOLE = "whole"
    """Every token as it was sampled; the episode is one segment."""
    INDIVIDUAL = "individual"
    """All messages, rendered anew by the chat template; each turn is a sample of its own, as in SETA."""
    DYNAMIC = "dynamic"
    """The same without its middle if it is too long, as with OpenClaw's ``--dynamic_history``."""


class ToolsetKind(StrEnum):
    """The tools of an agent that calls tools by name."""

    SHELL_ONLY = "shell_only"
    """One tool, one shell; a command that exceeds its time is killed."""
    SETA = "seta"
    """SETA's six: named sessions that keep running in the background."""
    OPENCLAW = "openclaw"
    """OpenClaw's four of these."""
    BROWSER = "browser"
    """A real browser, as in LIVEWEB, and no shell (docs/browser.md)."""


class CallFormatKind(StrEnum):
    """Format in which the model writes tool calls."""

    HERMES = "hermes"
    """A JSON object between ``<tool_call>`` and ``</tool_call>``, as Qwen's models write it."""
    AUTO = "auto"
    """The model's own, by its chat template."""


_SYSTEM_PROMPT = "Use the shell."
_PROMPT_FILES: dict[str, str] = {
    AgentKind.BASH: "bash-1",
    AgentKind.JSON: "json-1",
    AgentKind.KEYSTROKES: "keystrokes-1",
    AgentKind.CODE_INTERPRETER: "code_interpreter-1",
}
"""Default prompts of the agents whose action format the model has to be given."""
_BROWSER_PROMPT_FILE = "browser-1"
_CALLING_KINDS: set[str] = {AgentKind.HERMES, AgentKind.CODE_INTERPRETER}
_KINDS_WITH_OWN_TOOLS: set[str] = {AgentKind.BASH, AgentKind.KEYSTROKES, AgentKind.CODE_INTERPRETER}


def kind_has_prompt(kind: object) -> bool:
    """Say whether agents of ``kind`` have a prompt of their own, which describes the form of their actions."""
    return kind in _PROMPT_FILES


class AgentSettings(ConfigSection):
    """The agent and its opening messages."""

    kind: str = AgentKind.HERMES
    """The form of actions in a reply: ``hermes`` tool calls, one block of ``bash``, one ``json`` action,
    ``keystrokes`` for a terminal, ``code_interpreter`` calls, or the name of an agent that a package adds
    (docs/plugins.md)."""
    options: dict[str, str | int | float | bool] = Field(default_factory=dict[str, str | int | float | bool])
    """Options of an agent that a package adds; the built-in ones have none."""
    system_prompt: str = _SYSTEM_PROMPT
    """The first message of each episode if ``prompt`` is empty; only ``hermes`` reads it."""
    prompt: str = ""
    """The messages of the first prompt as a file: a name in actors/agents/prompts, which ends with its version, or the
    path of your own file, ending in .txt.  Empty for ``system_prompt``, or the kind's own file for other kinds."""
    tools: bool = True
    """List the tools and how to call them in the first prompt, by the model's chat template."""
    toolset: ToolsetKind = ToolsetKind.SHELL_ONLY
    """The tools that the agent may call: ``shell_only``, SETA's six (``seta``), OpenClaw's four (``openclaw``), or
    those of a ``browser`` and no shell (docs/browser.md)."""
    format: CallFormatKind = CallFormatKind.HERMES
    """Format of the tool calls of ``hermes`` and ``code_interpreter`` agents and of harnesses: ``hermes``, or the
    model's own by its chat template (``auto``): Qwen3-Coder's, GLM's, DeepSeek's, Kimi's, Llama 3's, Mistral's or
    MiniMax's, read by SGLang's detectors, or gpt-oss'."""
    thinking: ThinkingMode = ThinkingMode.TEMPLATE
    """Thinking before acting: as the ``template`` decides, ``on`` or ``off`` by the template's argument
    ``enable_thinking``, or ``no_think`` for ``/no_think`` at the end of the system message."""
    done_text: str = "done"
    """Final reply of the agent, without a tool call, in demonstrations."""

    @property
    def prompt_file(self) -> str:
        """The prompt file: ``prompt``, or the kind's own; empty if ``system_prompt`` is read."""
        of_browser = self.toolset is ToolsetKind.BROWSER and self.kind == AgentKind.JSON
        return self.prompt or (_BROWSER_PROMPT_FILE if of_browser else _PROMPT_FILES.get(self.kind, ""))

    @property
    def _has_own_prompt(self) -> bool:
        return self.system_prompt != _SYSTEM_PROMPT

    def make_spec(self) -> AgentSpec:
        """Read the prompt and return everything that makes an agent.  Raises UserError if it cannot be read."""
        prompt = load_agent_prompt(self.prompt_file) if self.prompt_file else PromptTemplate(self.system_prompt)
        if self.thinking is ThinkingMode.NO_THINK:
            prompt = prompt.with_last_line("/no_think")
        return AgentSpec(self, prompt)

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, kind: str) -> str:
        if kind not in list(AgentKind) and kind not in (added := plugin_names(PluginGroup.AGENTS)):
            known = [*AgentKind, *added]
            raise ValueError(
                f"agent.kind = '{kind}' is not an agent: choose from {', '.join(known)}{did_you_mean(kind, known)}"
            )
        return kind

    @model_validator(mode="after")
    def _check_unread_keys(self) -> Self:
        if self._has_own_prompt and not self.prompt and self.kind in _PROMPT_FILES:
            raise ValueError(
                f"agent.system_prompt would not be read, because agent.kind = '{self.kind}' needs a prompt with its "
                f"action format: copy actors/agents/prompts/{self.prompt_file}.txt, add your text, and "
                "name the file in agent.prompt"
            )
        if self.format is CallFormatKind.AUTO and self.kind not in _CALLING_KINDS:
            raise ValueError(
                f"agent.format = 'auto' is for agents that write tool calls ({', '.join(sorted(_CALLING_KINDS))}), and "
                f"agent.kind = '{self.kind}' does not: leave agent.format out"
            )
        if self.format is CallFormatKind.AUTO and not self.tools and not self.prompt and not self._has_own_prompt:
            raise ValueError(
                "agent.format = 'auto' reads calls as the model's chat template teaches them, and agent.tools = false "
                "omits that: set agent.tools = true, leave agent.format out, or describe the tools and the model's own "
                "calls in agent.system_prompt"
            )
        if self.options and self.kind in list(AgentKind):
            raise ValueError(
                f"agent.options are for agents that packages add, and agent.kind = '{self.kind}' has none: remove "
                f"{', '.join(self.options)}"
            )
        if self.toolset is not ToolsetKind.SHELL_ONLY and self.kind in _KINDS_WITH_OWN_TOOLS:
            raise ValueError(
                f"agent.toolset = '{self.toolset}' is for agents that call tools by their names, and agent.kind = "
                f"'{self.kind}' has its own: leave agent.toolset out, or set agent.kind = 'hermes'"
            )
        return self


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """Settings and prompt text of an agent, as workers, environment services and plugins get them."""

    settings: AgentSettings
    prompt: PromptTemplate
