"""``longshore COMMAND …`` runs ``python -m MODULE …``; ``longshore`` alone lists the commands.

A command is a module whose docstring begins with ``python -m MODULE …``: and what it does.  Listing them imports none.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from protocol.cli.command import longshore_version
from protocol.cli.exit_codes import EXIT_OK, main_guard
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
_OTHER_ROOMS = ("sandbox.tasks", "sandbox.host", "sandbox.images", "sandbox.toolchain", "sandbox.server")
_OTHER_COMMANDS = (*_OTHER_ROOMS, "sandbox.router", "sandbox.stress", "protocol.journal")
"""Modules outside launch that are commands too."""


class CommandModule(NamedTuple):
    module: str
    description: str
    """One line that describes the command."""


@functools.cache
def commands() -> dict[str, CommandModule]:
    """Return name → module of every command."""
    found: dict[str, CommandModule] = {}
    for path in _candidate_files():
        first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
        usage, _, description = first.partition("``: ")
        if usage.startswith("``python -m "):
            module = usage.removeprefix("``python -m ").split()[0]
            found[module.rpartition(".")[2]] = CommandModule(module, description)
    return dict(sorted(found.items()))


def _candidate_files() -> Iterator[Path]:
    yield from (ROOT / "launch").glob("*.py")
    yield from (ROOT / "launch").glob("*/__main__.py")
    for module in _OTHER_COMMANDS:
        path = ROOT.joinpath(*module.split("."))
        yield path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def main() -> None:
    """Run the console command ``longshore``."""
    sys.exit(main_guard(_run))


def _run() -> int:
    known, words = commands(), sys.argv[1:]
    if not words or words[0] in {"-h", "--help", "help"}:
        width = max(map(len, known), default=0)
        lines = [f"  {name:<{width}}  {command.description}" for name, command in known.items()]
        sys.stdout.write("\n".join(["usage: longshore COMMAND …  (COMMAND --help tells more)", *lines, ""]))
        return EXIT_OK
    if words == ["--version"]:
        sys.stdout.write(f"longshore {longshore_version()}\n")
        return EXIT_OK
    name = words[0].replace("-", "_")
    if name in known:
        module = known[name].module
        os.execv(sys.executable, [sys.executable, "-m", module, *words[1:]])  # noqa: S606  the same interpreter
    raise UserError(
        f"longshore has no command '{words[0]}'{did_you_mean(name, known)}; the commands are {', '.join(known)}"
    )


if __name__ == "__main__":
    main()
