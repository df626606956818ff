"""A command: a program with typed arguments, an optional JSON result, a final line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from protocol.cli.arguments import ArgumentsT, parse_arguments
from protocol.cli.exit_codes import EXIT_OK, main_guard
from protocol.cli.output import JsonOutput
from protocol.dependencies import installed_version


@dataclass(frozen=True, slots=True)
class Command(Generic[ArgumentsT]):
    """One command.  A runnable module defines one as ``COMMAND`` and ends with ``sys.exit(COMMAND.main())``."""

    module: str
    """Module name after ``python -m``."""
    arguments: type[ArgumentsT]
    run: Callable[[ArgumentsT, JsonOutput], int | None]
    """Function that does the work and returns the exit code; None means success."""

    json_options: tuple[str, ...] = ("--json",)
    """Options that make standard output one JSON object."""

    @property
    def prog(self) -> str:
        return f"python -m {self.module}"

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the command line ``argv`` (``sys.argv`` by default) and return its exit code."""
        return main_guard(lambda: self.call(argv))

    def call(self, argv: Sequence[str] | None = None) -> int:
        """Run the command line and let errors propagate."""
        words = sys.argv[1:] if argv is None else list(argv)
        if words == ["--version"]:
            sys.stdout.write(f"longshore {longshore_version()}\n")
            return EXIT_OK
        as_json = not {"--help", "-h"}.intersection(words) and any(word in self.json_options for word in words)
        with JsonOutput(as_json) as out:
            return self.run(parse_arguments(self.arguments, words, self.prog), out) or EXIT_OK


def longshore_version() -> str:
    """Return the version of the installed package, or ``0 (not installed)`` for a plain checkout."""
    return installed_version("longshore") or "0 (not installed)"
