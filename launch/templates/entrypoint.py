"""The program that a template starts on Ray's head node, with arguments RUNS RUN NODES -- WORDS.

It becomes ``longshore cluster`` on the cluster in RAY_ADDRESS, with a new run, or resuming the run if an earlier start
of the job left its directory.  This spares the template shell code, which each scheduler quotes differently.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from protocol.cli.exit_codes import main_guard
from protocol.errors import UserError
from protocol.run_directory.layout import CONFIG_FILE

_LEADING = 4
"""Number of arguments before the words."""


def make_cluster_arguments(given: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the arguments of ``longshore cluster``.  Raises UserError."""
    if len(given) < _LEADING or given[_LEADING - 1] != "--":
        raise UserError(
            "python -m launch.templates.entrypoint RUNS RUN NODES -- WORDS is for templates: see launch.templates"
        )
    runs, run, nodes, _, *words = given
    address = env.get("RAY_ADDRESS", "")
    if not address:
        raise UserError("RAY_ADDRESS, the address of the cluster to join, is not set: export RAY_ADDRESS=HOST:6379")
    exists = (Path(runs) / run / CONFIG_FILE).exists()
    which = ["--resume" if exists else "--run-id", run]
    return [*which, "--address", address, "--nodes", nodes, *words, "--set", f"run.dir={runs}"]


def main() -> None:
    """Replace this process by ``longshore cluster``."""
    words = make_cluster_arguments(sys.argv[1:], os.environ)
    os.execv(sys.executable, [sys.executable, "-m", "launch.cluster", *words])  # noqa: S606  the same interpreter, in this process


if __name__ == "__main__":
    sys.exit(main_guard(main))
