"""``longshore export SOURCE … --format FORMAT``: export trajectories as ShareGPT, ATIF or Hugging Face.

A source is a run's directory, or the folder of an evaluation with ``--save-trajectories``.  What is written is whole or
not there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field
from tyro.conf import Positional

from launch.export.selection import TrajectorySelection
from launch.export.writer import ExportFormat, ExportOptions, export_trajectories
from launch.trajectory_reader.trajectory_lookup import open_trajectory_source
from protocol.cli.arguments import CommandArguments, Flag, JsonFlag, TaskGlobs, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput, display_path, output_console
from protocol.errors import UserError
from protocol.run_directory.run_arguments import RunFolder

_NAMES = {ExportFormat.SHAREGPT: "{}.jsonl", ExportFormat.ATIF: "{}-atif", ExportFormat.HUGGINGFACE: "{}-dataset"}


class ExportArguments(CommandArguments):
    """Export trajectories: ShareGPT conversations, ATIF (Harbor), or a Hugging Face data set.

    Example: longshore export demo-1 --format sharegpt --passed --output good.jsonl
    """

    sources: Positional[Annotated[tuple[RunFolder, ...], option("SOURCE ..."), Field(min_length=1)]]
    """Runs, or folders of evaluations with --save-trajectories."""
    format: Annotated[ExportFormat, option()] = ExportFormat.SHAREGPT
    """Format of the export."""
    output: Annotated[Path | None, option("PATH")] = None
    """File (sharegpt) or folder (other formats); default: in exports/."""
    passed: Flag = False
    """Only trajectories whose tests all passed."""
    min_reward: Annotated[float | None, option("X")] = None
    """Only trajectories with a reward of at least X."""
    only: TaskGlobs = ()
    as_json: JsonFlag = False


def run(given: ExportArguments, out: JsonOutput) -> None:
    """Export, and print how many trajectories there are."""
    kind = given.format
    if len({*given.sources}) < len(given.sources):
        raise UserError("a source is named twice, and its trajectories would be there twice: name each once")
    choice = TrajectorySelection(given.only, given.min_reward, given.passed)
    output = given.output or Path("exports") / _NAMES[kind].format(given.sources[0].name)
    sources = [open_trajectory_source(str(name)) for name in given.sources]
    export_trajectories(sources, ExportOptions(kind, output, _describe_selection(given)), choice)
    excluded = {reason.value: number for reason, number in choice.excluded.items()}
    out.set_result(
        {
            "output": str(output),
            "format": kind.value,
            "sources": [source.origin.source for source in sources],
            "trajectories": choice.selected,
            "excluded": excluded,
        }
    )
    why = ", ".join(f"{number} for {reason}" for reason, number in excluded.items())
    output_console().print(
        f"{choice.selected} trajectories: {display_path(output)}" + (f" (left out: {why})" if why else "")
    )


def _describe_selection(given: ExportArguments) -> str:
    parts = (
        "all of them passed" if given.passed else "",
        f"rewards of at least {given.min_reward:g}" if given.min_reward is not None else "",
        f"tasks {' '.join(given.only)}" if given.only else "",
    )
    return "; ".join(filter(None, parts)) or "passed or not"


COMMAND = Command("export", ExportArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
