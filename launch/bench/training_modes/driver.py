"""``python -m launch.bench.training_modes.driver DELAYS WORD…``: ``launch.cluster WORD…`` with delayed workers."""

from __future__ import annotations

import os
import sys

from launch.bench.training_modes.delayed_worker import DELAYS_VARIABLE, DelayedDriver
from launch.cluster import run_once
from launch.run.arguments import parse_cluster_arguments
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK, main_guard


def main() -> int:
    os.environ[DELAYS_VARIABLE], *words = sys.argv[1:]
    summary = run_once(parse_cluster_arguments(words), driver_class=DelayedDriver)
    return EXIT_OK if summary["ok"] else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main_guard(main))
