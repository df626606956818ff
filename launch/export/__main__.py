"""``python -m launch.export SOURCE … --format FORMAT``: write trajectories as ShareGPT, ATIF or a data set.

A source is a run's directory, or the folder of an evaluation with ``--save-trajectories``.  What is written is whole or
not there.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from launch.export.hugging_face import require_pyarrow
from launch.export.selection import TrajectorySelection
from launch.export.writer import ExportFormat, ExportOptions, export_trajectories
from launch.trajectory_reader.lookup import open_trajectory_source
from protocol.cli.exit_codes import EXIT_OK, main_guard
from protocol.cli.output import display_path, error_console
from protocol.cli.parser import CommandLineParser, parse_command_line
from protocol.errors import UserError

_NAMES = {ExportFormat.SHAREGPT: "{}.jsonl", ExportFormat.ATIF: "{}-atif", ExportFormat.HUGGINGFACE: "{}-dataset"}


def main(argv: Sequence[str] | None = None) -> int:
    with parse_command_line(_parser(), argv) as (given, out):
        kind = ExportFormat(given.format)
        if kind is ExportFormat.HUGGINGFACE:
            require_pyarrow()
        if len({*given.sources}) < len(given.sources):
            raise UserError("a source is named twice, and its trajectories would be there twice: name each once")
        choice = TrajectorySelection(tuple(given.only), given.min_reward, given.passed)
        output = given.output or Path("exports") / _NAMES[kind].format(Path(given.sources[0]).name)
        sources = [open_trajectory_source(name) for name in given.sources]
        export_trajectories(sources, ExportOptions(kind, output, _described(given)), choice)
        left_out = {reason.value: number for reason, number in choice.excluded.items()}
        out.set_result(
            {
                "output": str(output),
                "format": kind.value,
                "sources": [source.origin.source for source in sources],
                "trajectories": choice.selected,
                "left_out": left_out,
            }
        )
        why = ", ".join(f"{number} for {reason}" for reason, number in left_out.items())
        error_console().print(
            f"{choice.selected} trajectories: {display_path(output)}" + (f" (left out: {why})" if why else "")
        )
    return EXIT_OK


def _parser() -> CommandLineParser:
    made = CommandLineParser(
        prog="python -m launch.export",
        description="Hand trajectories on: ShareGPT conversations, ATIF (Harbor), or a Hugging Face data set.",
        epilog="Example: python -m launch.export runs/demo-1 --format sharegpt --passed --output good.jsonl",
    )
    add = made.add_argument
    add("sources", nargs="+", metavar="SOURCE", help="a run's directory, or an evaluation's folder")
    add(
        "--format",
        choices=[each.value for each in ExportFormat],
        default=ExportFormat.SHAREGPT.value,
        help="default: sharegpt",
    )
    add("--output", type=Path, metavar="PATH", help="a file for sharegpt, else a folder (default: in exports/)")
    add("--passed", action="store_true", help="only trajectories whose tests all passed")
    add("--min-reward", type=_real, metavar="X", help="only those whose reward is at least X")
    add("--only", action="append", default=[], metavar="GLOB", help="names of tasks to take; !GLOB leaves out")
    add("--json", action="store_true", help="print what was written as one JSON object on standard output")
    return made


def _real(word: str) -> float:
    """Below zero too, as rewards may be."""
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{word!r} is no finite number")
    return value


def _described(given: argparse.Namespace) -> str:
    parts = (
        "all of them passed" if given.passed else "",
        f"rewards of at least {given.min_reward:g}" if given.min_reward is not None else "",
        f"tasks {' '.join(given.only)}" if given.only else "",
    )
    return "; ".join(filter(None, parts)) or "passed or not"


if __name__ == "__main__":
    sys.exit(main_guard(main))
