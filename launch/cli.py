"""``longshore X …`` is ``python -m launch.X …``; ``longshore`` alone lists the commands.

A command is a module or package of this room whose docstring begins with ``python -m launch.X …``: and what it does.
Listing them imports none.
"""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

from protocol.cli.exit_codes import main_guard
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError

LAUNCH_FOLDER = Path(__file__).resolve().parent


def commands() -> dict[str, str]:
    """Command → description, for all that this room can run."""
    found: dict[str, str] = {}
    for path in sorted([*LAUNCH_FOLDER.glob("*.py"), *LAUNCH_FOLDER.glob("*/__main__.py")]):
        first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
        usage, _, described = first.partition("``: ")
        if usage.startswith("``python -m launch."):
            found[usage.removeprefix("``python -m launch.").split()[0]] = described
    return found


def main() -> None:
    """The console command."""
    sys.exit(main_guard(_run))


def _run() -> None:
    known = commands()
    if len(sys.argv) < 2 or sys.argv[1] in {"-h", "--help", "help"}:
        width = max(map(len, known), default=0)
        lines = [f"  {name:<{width}}  {text}" for name, text in known.items()]
        sys.stderr.write("\n".join(["usage: longshore COMMAND …  (COMMAND --help tells more)", *lines, ""]))
        return
    name = sys.argv[1].replace("-", "_")
    if name not in known:
        raise UserError(
            f"longshore has no command '{sys.argv[1]}'{did_you_mean(name, known)}; it has {', '.join(known)}"
        )
    os.execv(sys.executable, [sys.executable, "-m", f"launch.{name}", *sys.argv[2:]])  # noqa: S606  the same interpreter, in this process


if __name__ == "__main__":
    main()
