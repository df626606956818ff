"""``python -m launch.bench.soak.driver TOKEN WORD…``: ``launch.cluster WORD…``, whose processes carry TOKEN."""

from __future__ import annotations

import sys

from launch.cluster import run_once
from launch.run.arguments import parse_cluster_arguments
from protocol.cli.exit_codes import EXIT_OK, main_guard


def main() -> int:
    token, *words = sys.argv[1:]
    run_once(parse_cluster_arguments(words), token=token)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main_guard(main))
