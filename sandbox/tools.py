"""The tools an agent may call, as a function-calling model sees them.

A tool is a schema and an async function from arguments to text.  Errors are text too: the agent reads them and goes on.
Only the loss of the sandbox itself is raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sandbox.session import SandboxSession
from sandbox.shell import CommandResult
from sandbox.truncate import shorten, without_escapes

OUTPUT_CHARS = 1000
"""Longer output is cut to its first and last 500 characters, as SETA does."""

Arguments: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    text: str
    """What the agent is told."""
    exit_code: int | None = None
    ms: float = 0.0
    timed_out: bool = False
    raw: str = field(default="", repr=False)
    """The output as people see it: not shortened to the agent's limit."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    session: SandboxSession
    command_timeout_s: float = 30.0
    output_chars: int = OUTPUT_CHARS
    """Longer output is cut to its beginning and its end."""
    on_output: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    schema: Mapping[str, Any]
    """The JSON schema that the chat template renders."""
    call: Callable[[ToolContext, Arguments], Awaitable[ToolResult]]


async def _shell_exec(context: ToolContext, arguments: Arguments) -> ToolResult:
    command = arguments.get("command")
    if not isinstance(command, str) or not command.strip():
        return ToolResult("Error: shell_exec needs a non-empty string argument 'command'.")
    try:
        done = await context.session.run(command, context.command_timeout_s, context.on_output)
    except ValueError as error:
        return ToolResult(f"Error: {error}.")
    text = describe(done, context.command_timeout_s, context.output_chars)
    return ToolResult(text, done.exit_code, done.ms, done.timed_out, done.output)


def describe(done: CommandResult, timeout_s: float, chars: int = OUTPUT_CHARS) -> str:
    """A command's result in the agent's words: output, then whatever was not a plain success."""
    text = shorten(without_escapes(done.output).rstrip("\n"), chars)
    notes: list[str] = []
    if done.timed_out:
        notes.append(f"Command timed out after {timeout_s:g} s and was killed.")
    elif done.exit_code:
        notes.append(f"Exit code: {done.exit_code}")
    if done.shell_restarted:
        notes.append("The shell was restarted in the same directory; variables are lost.")
    return "\n".join([*([text] if text else []), *notes]) or "(no output)"


SHELL_EXEC = Tool(
    "shell_exec",
    {
        "type": "function",
        "function": {
            "name": "shell_exec",
            "description": "Run a shell command in the persistent bash session of the sandbox and return its output.",
            "parameters": {
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "The bash command to run."},
                },
                "required": ["command"],
            },
        },
    },
    _shell_exec,
)

TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in (SHELL_EXEC,)}
"""By name."""


async def call_tool(context: ToolContext, name: str, arguments: Arguments) -> ToolResult:
    """Call a tool by name.  An unknown name is an answer to the agent.

    Raises SandboxLost or SandboxDestroyed.
    """
    tool = TOOLS.get(name)
    if tool is None:
        return ToolResult(f"Error: unknown tool {name!r}. Available: {', '.join(TOOLS)}.")
    return await tool.call(context, arguments)
