"""``python -m tests.support.drifted_run WORD…``: ``launch.cluster WORD…``, whose engines serve what is not trained."""

from __future__ import annotations

import sys

from launch.args import parse
from launch.cluster import run_once
from protocol.cli.exits import EXIT_OK, main_guard
from tests.support.drifted_crew import CREW


def main() -> int:
    run_once(parse(), crew=CREW)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main_guard(main))
