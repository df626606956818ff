"""``python -m sandbox.stress``: see :mod:`sandbox.stress`.

Exit code 0: every check held (all sessions alive at once, every answer right, nothing lost that was not broken on
purpose, every fault accounted for, nothing left); 1: one did not; 2: nothing could be done as asked; 130: interrupted.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence

import orjson
from rich.console import Console

from protocol.errors import LongshoreError, UserError
from protocol.events import Json
from sandbox.host import ensure
from sandbox.stress import board, options
from sandbox.stress.options import Options
from sandbox.stress.report import Report
from sandbox.stress.run import stress

_COLUMNS = 120
"""Of the table, where standard error is no terminal."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    try:
        chosen = options.read(given)
        report = asyncio.run(_shown(chosen))
    except (LongshoreError, KeyboardInterrupt) as error:  # the latter before anything was opened
        code = 130 if isinstance(error, KeyboardInterrupt) else 2 if isinstance(error, UserError) else 1
        said = str(error) or "interrupted"
        print(f"error: {said}", file=sys.stderr)
        _put({"error": said, "exit_code": code}, wanted="--json" in given)
        return code
    _put(report.json(), wanted=chosen.json)
    return 130 if report.interrupted else 0 if report.ok else 1


async def _shown(chosen: Options) -> Report:
    """Run, and show it on standard error."""
    host = await asyncio.to_thread(ensure)
    console = Console(stderr=True, width=None if sys.stderr.isatty() else _COLUMNS)
    report = Report(chosen.sessions)
    async with board.shown(report, console):
        await stress(chosen, host, report)
    console.print(board.table(report), soft_wrap=True)
    for line in (*report.problems, *(f"check failed: {said}" for said in report.broken())):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    return report


def _put(value: Mapping[str, Json], *, wanted: bool) -> None:
    if wanted:
        print(orjson.dumps(dict(value)).decode())


if __name__ == "__main__":
    sys.exit(main())
