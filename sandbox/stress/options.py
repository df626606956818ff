"""Options of a stress run, checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field

from protocol.cli.arguments import AtLeastOne, CommandArguments, JsonFlag, option
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


@dataclass(frozen=True, slots=True)
class StressOptions:
    """The arguments of a stress run, after their files were read and the names of faults resolved."""

    sessions: int
    rate: float
    duration_s: float
    commands: tuple[str, ...]
    faults: tuple[str, ...]
    server: str
    token: str = field(repr=False)
    """Bearer token for ``server``."""


class StressArguments(CommandArguments):
    """Start many sandboxes, verify every answer, inject faults on request, and report everything left behind.

    Exit code 0: all checks passed; 1: a check failed; 2: invalid request; 130: interrupted.

    Example: longshore stress --sessions 512 --faults all
    """

    sessions: AtLeastOne = 32
    """Concurrent sandboxes."""
    rate: Annotated[float, option("R"), Field(ge=0)] = 0.0
    """Commands per second over all sessions; 0: each session sends its next command as soon as it is answered."""
    duration_s: Annotated[float, option("S"), Field(gt=0)] = 10.0
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
        """Read the files that the arguments name. Raises UserError for an impossible argument."""
        if self.server:
            parts = urlsplit(self.server)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise UserError(f"--server {self.server!r} is not a URL: write it as http://127.0.0.1:18081")
        return StressOptions(
            self.sessions,
            self.rate,
            self.duration_s,
            read_commands(self.commands) if self.commands else DEFAULT_COMMANDS,
            parse_fault_names(self.faults),
            self.server.rstrip("/"),
            read_token(self.token_file, environment) if self.server else "",
        )


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
