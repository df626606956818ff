"""The tools that an agent may call in its sandbox, in sets by the project they come from.

The rollout renders a set's schemas into the prompt and answers the model's calls with :func:`call_tool`; a pool server
does so for its clients.  The agent gets its mistakes as text, and only the loss of the sandbox is raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, cast

from sandbox.errors import ShellBusy
from sandbox.session.files import FileTooLarge
from sandbox.tools import seta, shell_only
from sandbox.tools.browser import BROWSER_TOOLS
from sandbox.tools.code_interpreter import CODE_TOOL
from sandbox.tools.keystrokes import KEYSTROKES_TOOL
from sandbox.tools.tool import (
    PortableTool,
    PortableToolContext,
    SandboxTool,
    ToolArguments,
    ToolContext,
    ToolError,
    ToolResult,
    describe_result,
)

Toolset: TypeAlias = Mapping[str, SandboxTool]
"""Tools by name."""
NO_OBJECT = ToolResult("Error: the arguments must be an object with a name for each.")


def _set(*tools: SandboxTool) -> Toolset:
    return {tool.name: tool for tool in tools}


SETA = _set(seta.SHELL_EXEC, seta.SHELL_VIEW, seta.SHELL_WAIT, seta.SHELL_WRITE, seta.SHELL_KILL, seta.SHELL_WRITE_FILE)
OPENCLAW = _set(seta.SHELL_EXEC, seta.SHELL_VIEW, seta.SHELL_WRITE, seta.SHELL_WRITE_FILE)
TERMINAL_BENCH = _set(KEYSTROKES_TOOL)
CODE_INTERPRETER = _set(CODE_TOOL)
BROWSER = _set(*BROWSER_TOOLS)
"""The set of a browser, for agents without a shell."""
SHELL_ONLY = _set(shell_only.SHELL_EXEC)
"""The set with one tool; a command that exceeds its time limit is killed."""


def needs_browser(tools: Toolset) -> bool:
    """Return whether a tool of the set uses a browser."""
    return any(tools.get(name) is tool for name, tool in BROWSER.items())


async def call_tool(context: ToolContext, name: str, arguments: object, tools: Toolset = SETA) -> ToolResult:
    """Call a tool by name with :data:`ToolArguments`.  For an unknown name or any other type of arguments, the agent
    gets an error text.

    Raises SandboxLost or SandboxDestroyed.
    """
    return await answer_tool_call(name, arguments, tools, lambda tool, given: tool.call(context, given))


async def answer_tool_call(
    name: str, arguments: object, tools: Toolset, do: Callable[[SandboxTool, ToolArguments], Awaitable[ToolResult]]
) -> ToolResult:
    """Return the result of ``do`` for a tool of ``tools``; the agent gets its mistakes as error texts."""
    tool = tools.get(name)
    if tool is None:
        return ToolResult(f"Error: unknown tool {name!r}. Available: {', '.join(tools)}.")
    if not isinstance(arguments, Mapping):
        return NO_OBJECT
    try:
        return await do(tool, cast("ToolArguments", arguments))
    except OSError as error:
        return ToolResult(f"Error: {error.strerror or error}: {error.filename}.")
    except (ToolError, FileTooLarge, ShellBusy, ValueError) as error:
        return ToolResult(f"Error: {error}.")


__all__ = [
    "BROWSER",
    "CODE_INTERPRETER",
    "NO_OBJECT",
    "OPENCLAW",
    "SETA",
    "SHELL_ONLY",
    "TERMINAL_BENCH",
    "PortableTool",
    "PortableToolContext",
    "SandboxTool",
    "ToolArguments",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "Toolset",
    "answer_tool_call",
    "call_tool",
    "describe_result",
    "needs_browser",
]
