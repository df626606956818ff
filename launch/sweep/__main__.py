"""``python -m launch.sweep SWEEP|RECIPE …``: run or evaluate at every point of some axes, and set them side by side.

Exit code 0: every point that was asked for has ended, and none missed the goal; 1: some did not, or did.  One that
fails stops no other.  Ctrl-C stops; the same command goes on, and runs nothing again that has ended.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Sequence
from typing import cast

from rich.console import Console

from launch.sweep import evaluating, runs, training
from launch.sweep.arguments import Asked, asked, parser
from launch.sweep.axes import Point
from launch.sweep.definition import Kind
from launch.sweep.figures import State
from launch.sweep.folder import REPORT_FILE, SUMMARY_FILE, SweepFolder, check, opened
from launch.sweep.progress import Told
from launch.sweep.schedule import Carried
from launch.sweep.table import Table, aligned, as_json, average_rows, point_rows
from launch.sweep.writer import Writer
from protocol.cli.exits import EXIT_FAILED, EXIT_OK, main_guard
from protocol.cli.output import JsonOutput, error_console, shown
from protocol.cli.parser import check_text
from protocol.errors import UserError
from protocol.events import Json

_TO_RUN = {State.PLANNED, State.BROKEN_OFF}


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    return main_guard(lambda: _main(words))


def _main(words: Sequence[str]) -> int:
    with JsonOutput("--json" in words or "--dry-run" in words) as out:
        check_text(words)
        wanted = asked(parser().parse_args(words))
        check(wanted.output, wanted.sweep)
        chosen = wanted.chosen()
        carried = _carried(wanted)
        carried.check()
        to_run = [point for point in chosen if carried.outcome(point).state in _TO_RUN]
        if wanted.dry_run:
            out.set(_would_run(wanted, carried, to_run))
            return EXIT_OK
        if to_run:
            carried.preflight(to_run)
        table = _run(wanted, carried, to_run)
        out.set({**as_json(table, carried.place), "output": str(wanted.output)})
        names = {point.name for point in chosen}
        ended = all(row.outcome.state is State.ENDED for row in table.rows if row.point.name in names)
        return EXIT_OK if ended and not names & set(table.goal.missed) else EXIT_FAILED


def _carried(wanted: Asked) -> Carried:
    """Raises UserError for all points that cannot be."""
    sweep, folder = wanted.sweep, wanted.output
    known = [column.key for column in (runs if sweep.kind is Kind.TRAIN else evaluating).COLUMNS]
    if wrong := [key for key in sweep.goal if key not in known]:
        raise UserError(f"goal: there is no figure '{wrong[0]}': the figures are {', '.join(known)}")
    if sweep.kind is Kind.TRAIN:
        return training.Runs(sweep, training.configured(sweep), folder)
    return evaluating.Evaluations(sweep, evaluating.configured(sweep, folder), folder)


def _would_run(wanted: Asked, carried: Carried, to_run: Sequence[Point]) -> dict[str, Json]:
    sweep = wanted.sweep
    return {
        "sweep": sweep.name,
        "kind": sweep.kind.value,
        "recipe": sweep.recipe,
        "output": str(wanted.output),
        "common": cast("Json", dict(sweep.common)),
        "points": [
            {
                "name": point.name,
                "axes": cast("Json", dict(point.at)),
                "set": cast("Json", dict(point.values)),
                "state": carried.outcome(point).state.value,
                "folder": str(carried.place(point)),
            }
            for point in sweep.points
        ],
        "to_run": [point.name for point in to_run],
    }


def _run(wanted: Asked, carried: Carried, to_run: Sequence[Point]) -> Table:
    from launch.cluster import interruptible

    console = error_console()
    with opened(wanted.output, wanted.sweep) as folder:
        console.print(f"{len(wanted.sweep.points)} points, {len(to_run)} to run: {shown(folder.path)}")
        writer = Writer(wanted.sweep, carried, folder)
        try:
            if to_run:
                again = f"the same command: {shlex.join(['python', *sys.orig_argv[1:]])}"
                asyncio.run(interruptible(_work(wanted, writer, to_run, console), again))
        finally:
            table = writer.write()
        _conclude(table, carried, folder, console)
        return table


async def _work(wanted: Asked, writer: Writer, to_run: Sequence[Point], console: Console) -> dict[str, Json]:
    from launch.structured import beside

    table = writer.write()
    writer.told = told = Told(console, table.rows, table.columns)
    async with beside(told.follow()):
        await writer.carried.carry_out(to_run, wanted.parallel, writer.folder, writer)
    return {}


def _conclude(table: Table, carried: Carried, folder: SweepFolder, console: Console) -> None:
    for head, rows in (point_rows(table), average_rows(table)):
        for line in aligned(head, rows) if rows else ():
            console.print(line)
    for row in table.rows:
        if row.outcome.state is State.FAILED:
            console.print(f"failed: {row.point.name}: {row.outcome.why}: {carried.again(row.point)}")
    if table.goal.missed:
        console.print(f"the goal was missed by {', '.join(table.goal.missed)}")
    console.print(f"summary: {shown(folder.path / SUMMARY_FILE)}\nreport:  {shown(folder.path / REPORT_FILE)}")


if __name__ == "__main__":
    sys.exit(main())
