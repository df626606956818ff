"""``python -m launch.bench.training_modes.driver DELAYS WORD…``: ``launch.cluster WORD…`` with delayed episodes."""

from __future__ import annotations

import os
import sys

from launch.bench.training_modes.delayed_episodes import DELAYS_VARIABLE, DelayedEpisodeRunner
from launch.cluster import run_once
from launch.run.arguments import parse_cluster_arguments
from launch.run.run_classes import RunClasses
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK, main_guard


def main() -> int:
    os.environ[DELAYS_VARIABLE], *words = sys.argv[1:]
    summary = run_once(parse_cluster_arguments(words), RunClasses(episode_runner=DelayedEpisodeRunner))
    return EXIT_OK if summary["ok"] else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main_guard(main))
