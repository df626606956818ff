"""Python in the sandbox: each call is a separate program, with limits on time, memory and output.

Only files persist from one call to the next. A program that exceeds its memory limit gets a MemoryError, so that the
container is not killed for it; one that exceeds its time limit is killed, with its child processes.
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

_FILE = "/tmp/.code_interpreter.py"  # noqa: S108  the sandbox's
_SHARE = 0.9
"""Share of the container's memory for a program; the rest is for its shell."""


async def _run(context: PortableToolContext, arguments: ToolArguments) -> ToolResult:
    code = text_argument(arguments, "code")
    if not code.strip():
        raise ToolError("argument 'code' is empty")
    await context.session.write_files({_FILE: code.encode(errors="surrogateescape")})
    command = f"(ulimit -d {_memory_bytes(context) >> 10} && exec python3 -B -u {_FILE} < /dev/null)"
    done = await context.session.run(command, context.command_timeout_s, context.on_output)
    text = describe_result(done, context.command_timeout_s, context.output_chars)
    return ToolResult(text, done.exit_code, done.ms, done.timed_out, done.output)


def _memory_bytes(context: PortableToolContext) -> int:
    limit = context.session.memory_bytes
    return context.program_bytes if limit is None else min(int(_SHARE * limit), context.program_bytes)


CODE_TOOL = PortableTool(
    "code_interpreter",
    "Run a Python program and return what it prints. Nothing is kept from one call to the next but files.",
    (ToolParameter("code", "string", "The Python program; print what you want to see."),),
    _run,
)
