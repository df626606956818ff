"""SETA's six terminal tools with SETA's names, arguments and texts, so that agents trained there work here.

The differences repair bugs there: output of a command that went to the background is kept, a kill kills, a script
has finished when it has ended, and the hint names the maximum wait. A session keeps its directory and variables from
command to command. https://github.com/camel-ai/seta
"""

from __future__ import annotations

import posixpath

from sandbox.session.named_session import NamedSession
from sandbox.session.shell import SandboxShell
from sandbox.tools.named_sessions import IDLE_S, START_S, NamedSessions
from sandbox.tools.tool import (
    SHELL_RESTARTED,
    SandboxTool,
    ToolArguments,
    ToolContext,
    ToolError,
    ToolParameter,
    ToolResult,
    flag_argument,
    seconds_argument,
    shorten_output,
    text_argument,
)

LONGEST_WAIT_S = 10.0
WAIT_S = 5.0
NO_OUTPUT = "[No new output]"
COMPLETED_MARK = "\n[completed]"


def _sessions(context: ToolContext) -> NamedSessions:
    return NamedSessions(context.session, context.output_chars)


async def _exec(context: ToolContext, arguments: ToolArguments) -> ToolResult:
    name, command = text_argument(arguments, "id", "main"), text_argument(arguments, "command")
    if not command.strip():
        raise ToolError("argument 'command' is empty")
    sessions = _sessions(context)
    named = sessions.idle_session(name)
    if not flag_argument(arguments, "block", default=True):
        process = await sessions.open_process(named, command)
        await process.wait_until_settled(IDLE_S, START_S)
        output = process.new_output()
        first = shorten_output(output, context.output_chars, named.file) + ("" if process.running else COMPLETED_MARK)
        return ToolResult(describe_started(name, first), process.exit_code, raw=output)
    return await _run(context, sessions, named, command)


async def _run(context: ToolContext, sessions: NamedSessions, named: NamedSession, command: str) -> ToolResult:
    shell = sessions.shell_of(named)
    shell.start(command, context.on_output, sessions.spool(named))
    try:
        ended = await shell.wait_until_ended(context.command_timeout_s)
    except BaseException:
        shell.abandon()
        raise
    if ended:
        return _finished(context, shell)
    output = shell.new_output()
    partial = shorten_output(output, context.output_chars, named.file)
    return ToolResult(
        describe_still_running(named.name, context.command_timeout_s, partial), timed_out=True, raw=output
    )


def _finished(context: ToolContext, shell: SandboxShell, mark: str = "") -> ToolResult:
    done = shell.finish()
    text = shorten_output(done.output, context.output_chars, done.saved)
    notes = [SHELL_RESTARTED] if done.shell_restarted else []
    if done.exit_code is None:
        notes = ["Error: no process could be started: the sandbox's process limit is reached."]
    whole = "\n".join([*([text] if text else []), *notes]) or ("" if mark else "(no output)")
    return ToolResult((whole or NO_OUTPUT if mark else whole) + mark, done.exit_code, done.ms, raw=done.output)


def describe_started(name: str, first: str) -> str:
    """Describe a background process to the agent, with its first output."""
    return f"Session '{name}' started.\n\n[Initial Output]:\n{first}"


def describe_still_running(name: str, waited_s: float, partial: str) -> str:
    return (
        f"Command did not complete within {waited_s} seconds. Session '{name}' is still running.\n\n"
        "You can use:\n"
        f"  - shell_view('{name}') - get current output\n"
        f"  - shell_wait('{name}', wait_seconds={LONGEST_WAIT_S:g}) - wait for completion\n"
        f"  - shell_kill_process('{name}') - terminate\n\n"
        f"[Partial output so far]:\n{partial}"
    )


def _look(context: ToolContext, named: NamedSession) -> ToolResult:
    """Return the session's new output and whether it has ended."""
    shell = named.shell
    if shell is not None and shell.busy:
        if shell.has_result:
            return _finished(context, shell, COMPLETED_MARK)
        output, done, code = shell.new_output(), "", None
    elif named.process is not None:
        output, code = named.process.new_output(), named.process.exit_code
        done = "" if named.process.running else COMPLETED_MARK
    else:
        output, done, code = shell.new_output() if shell is not None else "", COMPLETED_MARK, None
    text = shorten_output(output, context.output_chars, named.file) or NO_OUTPUT
    return ToolResult(text + done, code, raw=output)


async def _view(context: ToolContext, arguments: ToolArguments) -> ToolResult:
    return _look(context, _sessions(context).find_session(text_argument(arguments, "id")))


async def _wait(context: ToolContext, arguments: ToolArguments) -> ToolResult:
    named = _sessions(context).find_session(text_argument(arguments, "id"))
    seconds = seconds_argument(arguments, "wait_seconds", WAIT_S, LONGEST_WAIT_S)
    if (running := named.running) is not None:
        await running.wait_until_ended(seconds)
    return _look(context, named)


async def _write(context: ToolContext, arguments: ToolArguments) -> ToolResult:
    name, text = text_argument(arguments, "id"), text_argument(arguments, "command")
    named = _sessions(context).find_session(name)
    process = named.running
    if process is None:
        raise ToolError(f"session '{name}' is not running")
    if isinstance(process, SandboxShell):
        raise ToolError(f"session '{name}' has no input: start its command with block=false to write to it")
    await process.send_bytes(text.encode(errors="surrogateescape") + b"\n")
    await process.wait_until_settled(IDLE_S, START_S)
    return _look(context, named)


async def _kill(context: ToolContext, arguments: ToolArguments) -> ToolResult:
    name = text_argument(arguments, "id")
    named = _sessions(context).find_session(name)
    process = named.running
    if process is None:
        return ToolResult(f"Session '{name}' is not running.")
    if isinstance(process, SandboxShell):
        await process.interrupt()
        process.release()
    else:
        await process.kill()
    return ToolResult(f"Process in session '{name}' has been terminated.")


async def _write_file(context: ToolContext, arguments: ToolArguments) -> ToolResult:
    content, path = text_argument(arguments, "content"), text_argument(arguments, "file_path")
    if not path.strip() or path.endswith("/"):
        raise ToolError("argument 'file_path' names no file")
    whole = posixpath.join(context.session.workdir, path)
    await context.session.write_files({whole: content.encode(errors="surrogateescape")})
    return ToolResult(f"Content successfully written to '{path}'.")


_ID = ToolParameter("id", "string", "Name of the session.")

SHELL_EXEC = SandboxTool(
    "shell_exec",
    "Run a bash command in a named session, which keeps its directory and variables. A command that takes longer than "
    "the limit goes on in the background.",
    (
        _ID,
        ToolParameter("command", "string", "The bash command to run."),
        ToolParameter(
            "block",
            "boolean",
            "Wait for the command to end (default); false starts it in the background.",
            required=False,
        ),
    ),
    _exec,
)
SHELL_VIEW = SandboxTool("shell_view", "Show what a session has printed since it was last looked at.", (_ID,), _view)
SHELL_WAIT = SandboxTool(
    "shell_wait",
    f"Wait for a session's command to end, at most {LONGEST_WAIT_S:g} seconds, and show its new output.",
    (_ID, ToolParameter("wait_seconds", "number", f"Default {WAIT_S:g}, at most {LONGEST_WAIT_S:g}.", required=False)),
    _wait,
)
SHELL_WRITE = SandboxTool(
    "shell_write_to_process",
    "Write a line to the process of a session that was started with block=false.",
    (_ID, ToolParameter("command", "string", "The text; a newline is added.")),
    _write,
)
SHELL_KILL = SandboxTool("shell_kill_process", "Kill what a session runs.", (_ID,), _kill)
SHELL_WRITE_FILE = SandboxTool(
    "shell_write_content_to_file",
    "Write text to a file, in place of what is there.",
    (
        ToolParameter("content", "string", "The whole content."),
        ToolParameter("file_path", "string", "Absolute, or relative to the working directory."),
    ),
    _write_file,
)
