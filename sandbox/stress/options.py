"""Options of a stress run, checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field

from protocol.cli.arguments import CommandArguments, JsonFlag, option
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from sandbox.http.auth import TOKEN_VARIABLE, read_token
from sandbox.session.init_connection.wire import MAX_COMMAND_BYTES
from sandbox.stress.faults import FAULTS

ALL_FAULTS = "all"
DEFAULT_COMMANDS = (
    "true",
    "pwd",
    "ls /",
    "seq 1 500",
    "printf '%s\\n' \"$RANDOM\" >/tmp/stress-last",
    "cat /tmp/stress-last",
)
"""Default commands of the load: each returns at once, and one has much output."""
_MOST_COMMAND_BYTES = MAX_COMMAND_BYTES // 8
"""Maximum size of a command; quoting and nonces are added to it."""
_HELP = "see `longshore stress --help`"


@dataclass(frozen=True, slots=True)
class StressOptions:
    sessions: int = 32
    """Concurrent sandboxes."""
    rate: float = 0.0
    """Commands per second of all sessions together; 0: each session continues as soon as it is answered."""
    duration_s: float = 10.0
    """Seconds of load."""
    commands: tuple[str, ...] = DEFAULT_COMMANDS
    faults: tuple[str, ...] = ()
    server: str = ""
    """URL of a pool server; empty for the library."""
    token: str = field(default="", repr=False)
    """Bearer token for that server."""
    json: bool = False


_DEFAULTS = StressOptions()


class StressArguments(CommandArguments):
    """Start many sandboxes, verify every answer, inject faults on request, and report everything left behind.

    Exit code 0: all checks passed; 1: a check failed; 2: invalid request; 130: interrupted.

    Example: longshore stress --sessions 512 --faults all
    """

    sessions: Annotated[int, option("N")] = _DEFAULTS.sessions
    """Concurrent sandboxes."""
    rate: Annotated[float, option("R")] = _DEFAULTS.rate
    """Commands per second over all sessions; 0: each session sends its next command as soon as it is answered."""
    duration_s: Annotated[float, option("S")] = _DEFAULTS.duration_s
    """Seconds of load."""
    commands: Annotated[Path | None, option("FILE")] = None
    """File with the commands of the load, one shell command per line, # begins a comment; default: a few short ones."""
    faults: Annotated[
        tuple[str, ...],
        option("NAME"),
        Field(description=f"Faults to inject: {ALL_FAULTS}, or some of {', '.join(FAULTS)}; default: none."),
    ] = ()
    server: Annotated[str, option("URL")] = ""
    """URL of a running `longshore server`; default: this machine's pool, in this process."""
    token_file: Annotated[
        Path | None, option("FILE"), Field(description=f"File with the server's bearer token; or {TOKEN_VARIABLE}.")
    ] = None
    as_json: JsonFlag = False

    def options(self, environment: Mapping[str, str]) -> StressOptions:
        """Return the checked options. Raises UserError for an impossible one."""
        return check_options(
            StressOptions(
                sessions=self.sessions,
                rate=self.rate,
                duration_s=self.duration_s,
                commands=read_commands(self.commands) if self.commands else DEFAULT_COMMANDS,
                faults=parse_fault_names(self.faults),
                server=self.server.rstrip("/"),
                token=read_token(self.token_file, environment) if self.server else "",
                json=self.as_json,
            )
        )


def check_options(options: StressOptions) -> StressOptions:
    """Return the options. Raises UserError for an impossible one."""
    if options.sessions < 1:
        raise UserError(f"--sessions {options.sessions}: at least one session is needed: {_HELP}")
    if not 0 <= options.rate < float("inf"):
        raise UserError(f"--rate {options.rate:g}: must be commands per second, 0 for no limit: {_HELP}")
    if not 0 < options.duration_s < float("inf"):
        raise UserError(f"--duration-s {options.duration_s:g}: must be more than 0 seconds: {_HELP}")
    if options.server:
        parts = urlsplit(options.server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"--server {options.server!r} is not a URL: write it as http://127.0.0.1:18081")
    return options


def parse_fault_names(given: Sequence[str]) -> tuple[str, ...]:
    """Parse names of faults, separate or comma-separated; ``all`` stands for every one. Raises UserError."""
    words = [word for each in given for word in each.split(",") if word]
    known = [ALL_FAULTS, *FAULTS]
    for word in words:
        if word not in known:
            raise UserError(
                f"--faults: there is no fault {word!r}: choose {', '.join(known)}{did_you_mean(word, known)}"
            )
    return tuple(FAULTS) if ALL_FAULTS in words else tuple(dict.fromkeys(words))


def read_commands(path: Path) -> tuple[str, ...]:
    """Read the commands of a file. Raises UserError if it cannot be read or has no command."""
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"--commands {path} cannot be read ({error}): name a text file of one command per line"
        ) from error
    commands = tuple(line for line in lines if line and not line.startswith("#"))
    if not commands:
        raise UserError(f"--commands {path} has no command: write one per line")
    for command in commands:
        if "\0" in command or len(command.encode()) > _MOST_COMMAND_BYTES:
            raise UserError(
                f"--commands {path}: no NUL, and at most {_MOST_COMMAND_BYTES >> 10} KiB: {command[:40]!r}…"
            )
    return commands
