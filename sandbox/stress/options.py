"""What a stress run is told, checked before anything starts."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from protocol.cli.parser import CommandLineParser
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from sandbox.http.auth import TOKEN_VARIABLE, read_token
from sandbox.session.wire import MAX_COMMAND_BYTES
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
"""What the load runs unless it is told otherwise: each returns at once, and one of them says much."""
_MOST_COMMAND_BYTES = MAX_COMMAND_BYTES // 8
"""Quoting and nonces come on top."""
_HELP = "see `python -m sandbox.stress --help`"


@dataclass(frozen=True, slots=True)
class StressOptions:
    sessions: int = 32
    """Alive at once."""
    rate: float = 0.0
    """Commands a second in the load, all sessions together; 0: each session asks again as soon as it is answered."""
    duration_s: float = 10.0
    """Of the load."""
    commands: tuple[str, ...] = DEFAULT_COMMANDS
    faults: tuple[str, ...] = ()
    server: str = ""
    """Address of a pool server; empty for the library."""
    token: str = field(default="", repr=False)
    """Shown to that server."""
    json: bool = False


_DEFAULTS = StressOptions()


def build_parser() -> CommandLineParser:
    made = CommandLineParser(
        prog="python -m sandbox.stress",
        description="Start sandboxes, ask them all, verify every answer, break things on request, and account for it.",
        epilog="exit code 0: every check held; 1: one did not; 2: nothing could be done as asked; 130: interrupted",
    )
    add = made.add_argument
    add("--sessions", type=int, default=_DEFAULTS.sessions, metavar="N", help="alive at once (default: %(default)s)")
    add("--rate", type=float, default=_DEFAULTS.rate, metavar="R",
        help="commands a second under load, of all sessions; 0: as fast as they are answered (default: 0)")  # fmt: skip
    add("--duration", type=float, default=_DEFAULTS.duration_s, metavar="S",
        help="seconds of load (default: %(default)g)")  # fmt: skip
    add("--commands", type=Path, metavar="FILE",
        help="what the load runs: one shell command a line, # for a comment (default: a few short ones)")  # fmt: skip
    add("--faults", nargs="*", default=[], metavar="NAME",
        help=f"faults to inject (default: none): {ALL_FAULTS}, or of {', '.join(FAULTS)}")  # fmt: skip
    add("--server", default="", metavar="URL", help="ask a running `python -m sandbox.server` (default: the library)")
    add("--token-file", type=Path, metavar="FILE", help=f"the server's bearer token; or {TOKEN_VARIABLE}")
    add("--json", action="store_true", help="one JSON object on standard output, last")
    return made


def read_options(given: argparse.Namespace, environment: Mapping[str, str]) -> StressOptions:
    """What a command line says.  Raises UserError."""
    return check_options(
        StressOptions(
            given.sessions, given.rate, given.duration, read_commands(given.commands) if given.commands else DEFAULT_COMMANDS,
            parse_fault_names(given.faults), given.server.rstrip("/"),
            read_token(given.token_file, environment) if given.server else "", given.json,
        )
    )  # fmt: skip


def check_options(options: StressOptions) -> StressOptions:
    """The same options.  Raises UserError for what cannot be done."""
    if options.sessions < 1:
        raise UserError(f"--sessions {options.sessions}: at least one session is needed: {_HELP}")
    if not 0 <= options.rate < float("inf"):
        raise UserError(f"--rate {options.rate:g}: commands a second, 0 for no bound: {_HELP}")
    if not 0 < options.duration_s < float("inf"):
        raise UserError(f"--duration {options.duration_s:g}: seconds, more than 0: {_HELP}")
    if options.server:
        parts = urlsplit(options.server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"--server {options.server!r} is no address: write it as http://127.0.0.1:18081")
    return options


def parse_fault_names(given: Sequence[str]) -> tuple[str, ...]:
    """Names of faults, given apart or with commas between; ``all`` for every one.  Raises UserError."""
    words = [word for each in given for word in each.split(",") if word]
    for word in words:
        if word != ALL_FAULTS and word not in FAULTS:
            near = did_you_mean(word, FAULTS)
            raise UserError(f"--faults: no fault is named {word!r}{near}  There are: {ALL_FAULTS}, {', '.join(FAULTS)}")
    return tuple(FAULTS) if ALL_FAULTS in words else tuple(dict.fromkeys(words))


def read_commands(path: Path) -> tuple[str, ...]:
    """Raises UserError for a file that cannot be read or has no command."""
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--commands {path} cannot be read ({error}): name a text file, one command a line") from error
    commands = tuple(line for line in lines if line and not line.startswith("#"))
    if not commands:
        raise UserError(f"--commands {path} has no command: write one a line")
    for command in commands:
        if "\0" in command or len(command.encode()) > _MOST_COMMAND_BYTES:
            raise UserError(
                f"--commands {path}: no NUL, and at most {_MOST_COMMAND_BYTES >> 10} KiB: {command[:40]!r}…"
            )
    return commands
