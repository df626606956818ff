"""``launch.cluster`` whose engines serve what is not trained: ``python -m tests.support.fakes.drifted_run WORD…``."""

from __future__ import annotations

import os
import sys

from launch.cluster import run_once
from launch.hosts.ray_environment import resolve_ray_environment
from launch.run.arguments import parse_cluster_arguments
from protocol.cli.exit_codes import EXIT_OK, main_guard


def main() -> int:
    os.environ.update(resolve_ray_environment(""))
    from launch.run.run_classes import RunClasses  # this and the next load Ray
    from tests.support.fakes.drifted_learner import DriftedLearnerRank

    run_once(parse_cluster_arguments(sys.argv[1:]), RunClasses(learner=DriftedLearnerRank))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main_guard(main))
