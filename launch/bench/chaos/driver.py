"""``python -m launch.bench.chaos.driver TOKEN WORD…``: ``launch.cluster WORD…`` with kill points."""

from __future__ import annotations

import sys

from launch.bench.chaos.killable_classes import KILLABLE_CLASSES
from launch.cluster import run_once
from launch.run.arguments import parse_cluster_arguments
from protocol.cli.exit_codes import EXIT_OK, main_guard


def main() -> int:
    token, *words = sys.argv[1:]
    arguments = parse_cluster_arguments(words)
    run_once(arguments, KILLABLE_CLASSES, token=token)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main_guard(main))
