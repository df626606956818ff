"""What a template starts on the node of Ray's head: ``python -m launch.templates.entrypoint RUNS RUN NODES -- WORDS``.

It becomes ``python -m launch.cluster`` on the cluster that RAY_ADDRESS names, with a new run, or, where an earlier
start of the job has left the run's directory, going on with it.  So a template needs no shell of its own for it, which
each scheduler would quote in its own way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.run_records.run_directory import CONFIG_FILE
from protocol.cli.exit_codes import main_guard
from protocol.errors import UserError

_OWN = 4
"""Arguments before the words."""


def make_cluster_arguments(given: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """For ``launch.cluster``.  Raises UserError."""
    if len(given) < _OWN or given[_OWN - 1] != "--":
        raise UserError(
            "python -m launch.templates.entrypoint RUNS RUN NODES -- WORDS is for templates: see launch.templates"
        )
    runs, run, nodes, _, *words = given
    address = env.get("RAY_ADDRESS", "")
    if not address:
        raise UserError("RAY_ADDRESS is not set, and names the cluster to join: export RAY_ADDRESS=HOST:6379")
    begun = (Path(runs) / run / CONFIG_FILE).exists()
    which = ["--resume" if begun else "--run-id", run]
    return [*which, "--address", address, "--nodes", nodes, *words, "--set", f"run.dir={runs}"]


def main() -> None:
    """See the module."""
    words = make_cluster_arguments(sys.argv[1:], os.environ)
    os.execv(sys.executable, [sys.executable, "-m", "launch.cluster", *words])  # noqa: S606  the same interpreter, in this process


if __name__ == "__main__":
    sys.exit(main_guard(main))
