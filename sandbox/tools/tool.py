"""The parts of a tool: a schema that the chat template renders, and an async function from arguments to text.

Errors are text too: the agent reads them and continues. Only the loss of the sandbox itself is raised.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from protocol.truncation import strip_escapes, truncate_middle
from sandbox.browser.browser import SandboxBrowser
from sandbox.session.sandbox_session import SandboxSession
from sandbox.session.shell import CommandResult

OUTPUT_CHARS = 1000
"""Maximum characters of output; longer output is cut to its first and last 500 characters, as in SETA."""

PROGRAM_BYTES = 2048 << 20
"""Default memory limit of a program, as in SandboxFusion."""

ToolArguments: TypeAlias = Mapping[str, Any]


class ToolError(Exception):
    """A mistake of the agent, described in a sentence for it."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    text: str
    """Text for the agent."""
    exit_code: int | None = None
    ms: float = 0.0
    timed_out: bool = False
    """The command was killed at its time limit, or continued in the background."""
    raw: str = field(default="", repr=False)
    """Output for people, which is not shortened to the agent's limit."""
    picture: bytes | None = field(default=None, repr=False)
    """What a browser shows after the action, as a JPEG for people.  It has at most
    :data:`protocol.run_directory.page_pictures.PICTURE_BYTES`."""


class ToolTarget(Protocol):
    """The part of a sandbox that a portable tool uses; every provider's sandbox has it."""

    @property
    def workdir(self) -> str: ...

    @property
    def memory_bytes(self) -> int | None:
        """Memory limit of its container; None if unknown."""
        ...

    async def run(
        self, command: str, timeout_s: float, on_output: Callable[[str], None] | None = None
    ) -> CommandResult: ...

    async def write_files(self, files: Mapping[str, bytes], /, *, mode: int = 0o644) -> None: ...


@dataclass(frozen=True, slots=True)
class PortableToolContext:
    session: ToolTarget
    command_timeout_s: float
    """Seconds that a tool waits for a command."""
    output_chars: int = OUTPUT_CHARS
    """Maximum characters of output; longer output is cut to its beginning and its end."""
    on_output: Callable[[str], None] | None = None
    program_bytes: int = PROGRAM_BYTES
    """Maximum memory of a code interpreter's program, if its container has that much."""


@dataclass(frozen=True, slots=True)
class ToolContext(PortableToolContext):
    session: SandboxSession
    """A session of this process's pool."""
    browser: SandboxBrowser | None = None
    """The browser that runs in it, if the agent has one."""


@dataclass(frozen=True, slots=True)
class ToolParameter:
    name: str
    kind: str
    """Type as JSON schema names it."""
    description: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class SandboxTool:
    name: str
    description: str
    parameters: tuple[ToolParameter, ...]
    call: Callable[[ToolContext, ToolArguments], Awaitable[ToolResult]]

    @property
    def schema(self) -> Mapping[str, Any]:
        """Return the function as OpenAI's chat API describes it."""
        properties = {each.name: {"type": each.kind, "description": each.description} for each in self.parameters}
        required = [each.name for each in self.parameters if each.required]
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": {"type": "object", "properties": properties, "required": required},
            },
        }


@dataclass(frozen=True, slots=True)
class PortableTool(SandboxTool):
    """A tool that only needs commands and files, so that it works in every provider's sandbox."""

    call: Callable[[PortableToolContext, ToolArguments], Awaitable[ToolResult]]


def text_argument(arguments: ToolArguments, name: str, default: str | None = None) -> str:
    """Return a text argument. Raises ToolError."""
    value = arguments.get(name, default)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # models number their sessions
    if not isinstance(value, str):
        raise ToolError(f"argument '{name}' must be a string")
    return value


def file_argument(arguments: ToolArguments, name: str, workdir: str, home: str = "") -> str:
    """Return an argument that names a file as an absolute path: relative to ``workdir``, or with ``~`` for ``home``.

    Raises ToolError for anything else that a shell would replace: as it stands it would be a strange name.
    """
    path = text_argument(arguments, name)
    if not path.strip() or path.endswith("/"):
        raise ToolError(f"argument '{name}' names no file")
    first, _, rest = path.partition("/")
    if first == "~" and home and rest.strip("/"):
        return posixpath.join(home, rest.lstrip("/"))
    if first.startswith(("~", "$")):
        raise ToolError(f"argument '{name}' begins with '{first}', which only a shell replaces: give the absolute path")
    return posixpath.join(workdir, path)


def seconds_argument(arguments: ToolArguments, name: str, default: float, most: float) -> float:
    """Return a number of seconds within 0 and ``most``.  Raises ToolError."""
    value = arguments.get(name, default)
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):  # the last is a whole number above all floats
        raise ToolError(f"argument '{name}' must be a number of seconds") from None
    return default if math.isnan(seconds) else min(max(seconds, 0.0), most)


def flag_argument(arguments: ToolArguments, name: str, *, default: bool) -> bool:
    """Return a boolean argument, which a model may have written as a string. Raises ToolError."""
    value = arguments.get(name, default)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if not isinstance(value, bool):
        raise ToolError(f"argument '{name}' must be true or false")
    return value


def shorten_output(output: str, chars: int, saved: str = "") -> str:
    """Return output as an agent sees it: without escape sequences, both ends of long output, and the path of the
    rest."""
    return truncate_output(strip_escapes(output).rstrip("\n"), chars, saved)


def truncate_output(text: str, chars: int, saved: str = "") -> str:
    """Return both ends of a long text, and the path of the whole of it."""
    return truncate_middle(
        text, chars, f"Output truncated. Full output saved at: {saved}" if saved else "Output truncated"
    )


SHELL_RESTARTED = "The shell was restarted in the same directory; variables are lost."


def describe_result(done: CommandResult, timeout_s: float, chars: int = OUTPUT_CHARS) -> str:
    """Describe a command's result to the agent: output, then everything that was not a plain success."""
    text = shorten_output(done.output, chars, done.saved)
    notes: list[str] = []
    if done.timed_out:
        notes.append(f"Command timed out after {timeout_s:g} s and was killed.")
    elif done.exit_code:
        notes.append(f"Exit code: {done.exit_code}")
    if done.shell_restarted:
        notes.append(SHELL_RESTARTED)
    return "\n".join([*([text] if text else []), *notes]) or "(no output)"
