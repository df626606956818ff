"""SETA's six terminal tools with SETA's names, arguments and texts, so that agents trained there work here.

The texts are those of seta_env/toolkits/terminal_toolkit_docker.py in https://github.com/camel-ai/seta-release; what is
wrong with a call's arguments is said in words of our own.  These are repaired:

- Output of a command that went to the background is kept, and what came before an input is shown, not thrown away.
- A kill kills the processes; there it closes a socket, or nothing.
- A script has finished when it has ended, and the hint names the maximum wait, which is 10 seconds there too.
- A session keeps its directory and variables from command to command; a shell that had to begin anew says so.
- A second command is refused while a session runs one; there the first is lost.
- A file's missing folders are made, and a relative path begins at the working directory, not at the root.
"""

from __future__ import annotations

from protocol.truncation import strip_escapes
from sandbox.session.named_session import NamedSession
from sandbox.session.shell import SandboxShell
from sandbox.tools.named_sessions import IDLE_S, NO_ACTIVE_SESSION, START_S, NamedSessions
from sandbox.tools.tool import (
    SHELL_RESTARTED,
    SandboxTool,
    ToolArguments,
    ToolContext,
    ToolError,
    ToolParameter,
    ToolResult,
    file_argument,
    flag_argument,
    seconds_argument,
    text_argument,
    truncate_output,
)

LONGEST_WAIT_S = 10.0
WAIT_S = 5.0
COMPLETED_MARK = "\n[completed]"
NO_LONGER_RUNNING = "Session is no longer running. Use shell_view to get final output."


def show_output(output: str, chars: int, saved: str = "") -> str:
    """Return output as SETA shows it: without escape sequences, with a line's end for each carriage return, and both
    ends of long output with the path of the whole of it."""
    text = strip_escapes(output).replace("\r\n", "\n").replace("\r", "\n")
    return truncate_output(text, chars, saved)


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
        named.in_background = True
        await process.wait_until_settled(IDLE_S, START_S)
        output = process.new_output()
        first = show_output(output, context.output_chars, named.file)
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
    named.in_background = True
    output = shell.new_output()
    partial = show_output(output, context.output_chars, named.file)
    return ToolResult(
        describe_still_running(named.name, context.command_timeout_s, partial), timed_out=True, raw=output
    )


def _finished(context: ToolContext, shell: SandboxShell, mark: str = "") -> ToolResult:
    done = shell.finish()
    text = show_output(done.output, context.output_chars, done.saved)
    if done.exit_code is None:
        text = add_line(text, "Error: no process could be started: the sandbox's process limit is reached.")
    elif done.shell_restarted:
        text = add_line(text, SHELL_RESTARTED)
    return ToolResult(text + mark, done.exit_code, done.ms, raw=done.output)


def add_line(text: str, line: str) -> str:
    """Return ``text`` with another line at its end."""
    return text + ("" if not text or text.endswith("\n") else "\n") + line


def describe_started(name: str, first: str) -> str:
    """Describe a background process to the agent, with its first output."""
    return f"Session '{name}' started.\n\n[Initial Output]:\n{first}"


def describe_still_running(name: str, waited_s: float, partial: str) -> str:
    return (
        f"Command did not complete within {waited_s} seconds. Session '{name}' is still running.\n\n"
        "You can use:\n"
        f"  - shell_view('{name}') - get current output\n"
        f"  - shell_wait('{name}', wait_seconds={LONGEST_WAIT_S:g}) - wait for completion\n"
        f"  - shell_kill_process('{name}') - terminate"
    ) + (f"\n\n[Partial output so far]:\n{partial}" if partial else "")


def describe_killed(name: str) -> str:
    return f"Session '{name}' terminated."


def describe_without_input(name: str) -> str:
    return f"Error writing to session '{name}': it has no input; start its command with block=false to write to it."


def describe_written(path: str) -> str:
    return f"Content written to '{path}'."


def describe_unwritten(path: str, error: OSError) -> str:
    return f"Error writing to '{path}': {error.strerror or error}"


def _look(context: ToolContext, named: NamedSession, mark: str = COMPLETED_MARK) -> ToolResult:
    """Return the session's new output, and ``mark`` if it has ended."""
    shell = named.shell
    if shell is not None and shell.busy:
        if shell.has_result:
            return _finished(context, shell, mark)
        output, done, code = shell.new_output(), "", None
    elif named.process is not None:
        output, code = named.process.new_output(), named.process.exit_code
        done = "" if named.process.running else mark
    else:
        output, done, code = shell.new_output() if shell is not None else "", mark, None
    text = show_output(output, context.output_chars, named.file)
    return ToolResult(text + done, code, raw=output)


async def _view(context: ToolContext, arguments: ToolArguments) -> ToolResult:
    return _look(context, _sessions(context).find_session(text_argument(arguments, "id")))


async def _wait(context: ToolContext, arguments: ToolArguments) -> ToolResult:
    named = _sessions(context).find_session(text_argument(arguments, "id"))
    seconds = seconds_argument(arguments, "wait_seconds", WAIT_S, LONGEST_WAIT_S)
    running = named.running
    if running is None or (isinstance(running, SandboxShell) and running.has_result):
        return ToolResult(NO_LONGER_RUNNING)
    await running.wait_until_ended(seconds)
    return _look(context, named, mark="")


async def _write(context: ToolContext, arguments: ToolArguments) -> ToolResult:
    name, text = text_argument(arguments, "id"), text_argument(arguments, "command")
    named = _sessions(context).find_session(name, NO_ACTIVE_SESSION)
    process = named.running
    if process is None:
        raise ToolError(NO_ACTIVE_SESSION.format(name))
    if isinstance(process, SandboxShell):
        return ToolResult(describe_without_input(name))
    await process.send_bytes(text.encode(errors="surrogateescape") + b"\n")
    await process.wait_until_settled(IDLE_S, START_S)
    return _look(context, named, mark="")


async def _kill(context: ToolContext, arguments: ToolArguments) -> ToolResult:
    name = text_argument(arguments, "id")
    named = _sessions(context).find_session(name, NO_ACTIVE_SESSION)
    process = named.running
    if process is None:
        raise ToolError(NO_ACTIVE_SESSION.format(name))
    if isinstance(process, SandboxShell):
        await process.interrupt()
        process.release()
    else:
        await process.kill()
    named.in_background = False
    return ToolResult(describe_killed(name))


async def _write_file(context: ToolContext, arguments: ToolArguments) -> ToolResult:
    content, path = text_argument(arguments, "content"), text_argument(arguments, "file_path")
    session = context.session
    home = await session.home() if path.startswith("~") else ""
    whole = file_argument(arguments, "file_path", session.workdir, home)
    try:
        await session.write_files({whole: content.encode(errors="surrogateescape")})
    except OSError as error:
        return ToolResult(describe_unwritten(path, error))
    return ToolResult(describe_written(path))


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
