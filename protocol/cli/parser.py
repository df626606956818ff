"""Command lines: a mistake in one is an error like any other, so that ``--json`` has its object then too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from protocol.cli.output import JsonOutput
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError


class CommandLineParser(argparse.ArgumentParser):
    """Raises UserError where argparse would print and exit.  Options are written in full, as :func:`parsed` looks for
    ``--json``.  A description may be a docstring."""

    def __init__(self, *, allow_abbrev: bool = False, description: str | None = None, **settings: Any) -> None:
        super().__init__(allow_abbrev=allow_abbrev, description=(description or "").replace("``", "`"), **settings)

    def error(self, message: str) -> NoReturn:
        wrong = [word for word in message.split() if word.startswith("--")]
        hint = ""
        if message.startswith("unrecognized arguments") and wrong:
            hint = did_you_mean(wrong[0].partition("=")[0], self._option_string_actions)
        raise UserError(f"{message}{hint}; see {self.prog} --help")


def require_utf8(words: Sequence[str]) -> None:
    """Python stands in for bytes that are not UTF-8 with what no record and no JSON can hold.  Raises UserError."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{word!a} on the command line is not UTF-8: write it anew, or rename the file") from error


@contextmanager
def parse_command_line(
    parser: CommandLineParser, argv: Sequence[str] | None = None
) -> Generator[tuple[argparse.Namespace, JsonOutput]]:
    """What a command line (``sys.argv`` by default) says, and where its ``--json`` object goes: a mistake in the line
    is raised within, so that there is an object for it too."""
    words = sys.argv[1:] if argv is None else argv
    with JsonOutput("--json" in words) as out:
        require_utf8(words)
        yield parser.parse_args(words), out
