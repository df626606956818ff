"""``python -m launch.bench transport [--json]``: measure a part of longshore beside what others would use instead."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

from launch.bench import transport
from launch.errors import EXIT_FAILED, EXIT_OK, main_guard
from launch.parser import Parser, parsed
from launch.ray_settings import ray_settings


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m launch.bench", allow_abbrev=False)
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    made = kinds.add_parser("transport", help="trajectories a second from one process to another, by length")
    transport.add_options(made)
    made.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    with parsed(parser, argv) as (given, out):
        os.environ.update(ray_settings(""))
        report = asyncio.run(transport.measure(transport.options(given)))
        out.set(report.as_json())
    return EXIT_OK if report.holds else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main_guard(main))
