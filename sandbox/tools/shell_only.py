"""A single tool with a single shell, for agents without background sessions.

A command that exceeds its time limit is killed, and the exit code of a failed one is reported.
"""

from __future__ import annotations

from sandbox.tools.tool import (
    PortableTool,
    PortableToolContext,
    ToolArguments,
    ToolError,
    ToolParameter,
    ToolResult,
    describe_result,
    text_argument,
)


async def _shell_exec(context: PortableToolContext, arguments: ToolArguments) -> ToolResult:
    command = text_argument(arguments, "command")
    if not command.strip():
        raise ToolError("argument 'command' is empty")
    done = await context.session.run(command, context.command_timeout_s, context.on_output)
    text = describe_result(done, context.command_timeout_s, context.output_chars)
    return ToolResult(text, done.exit_code, done.ms, done.timed_out, done.output)


SHELL_EXEC = PortableTool(
    "shell_exec",
    "Run a shell command in the persistent bash session of the sandbox and return its output.",
    (ToolParameter("command", "string", "The bash command to run."),),
    _shell_exec,
)
