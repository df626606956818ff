"""A command: a program with typed arguments, an optional JSON result, a final line and an exit code."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Generic

from protocol.cli.arguments import ArgumentsT, parse_arguments
from protocol.cli.exit_codes import EXIT_OK, main_guard
from protocol.cli.output import JsonOutput
from protocol.dependencies import longshore_version


@dataclass(frozen=True, slots=True)
class Command(Generic[ArgumentsT]):
    """One command.  A runnable module defines one as ``COMMAND`` and ends with ``sys.exit(COMMAND.main())``."""

    verb: str
    """Name after ``longshore``."""
    arguments: type[ArgumentsT]
    run: Callable[[ArgumentsT, JsonOutput], int | None]
    """Function that does the work and returns the exit code; None means success."""

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the command line ``argv`` (``sys.argv`` by default) and return its exit code."""
        return main_guard(lambda: self.call(argv))

    def call(self, argv: Sequence[str] | None = None) -> int:
        """Run the command line and let errors propagate."""
        words = sys.argv[1:] if argv is None else list(argv)
        as_json = not {"--help", "-h"}.intersection(words) and "--json" in words
        with JsonOutput(as_json) as out:
            if "--version" in takewhile(lambda word: word != "--", words):
                version = longshore_version()
                out.set_result({"version": version})
                if not as_json:
                    sys.stdout.write(f"longshore {version}\n")
                return EXIT_OK
            return self.run(parse_arguments(self.arguments, words, f"longshore {self.verb}"), out) or EXIT_OK


def typed_command(verb: str) -> str:
    """Return the command line of this process, as ``longshore VERB …``."""
    return shlex.join(["longshore", verb, *sys.argv[1:]])
