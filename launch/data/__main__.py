"""``longshore data get URL --ids IDS --output FILE``: fetch SWE-SYNTH's bugs from a bucket into a file of rows.

Exit code 0: the file has every bug that was asked for; 1: the bucket has no bug, or something else, of some numbers.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from tyro.conf import Positional, UseAppendAction

from launch.data.bucket import fetch_bugs, parse_numbers
from protocol.cli.arguments import CommandArguments, JsonFlag, option, repeatable
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, display_path, error_console, output_console
from protocol.errors import UserError
from protocol.settings import split_commas

_URL = re.compile(r"https?://[^\s/?#][^\s?#]*")
_SHOWN = 10
"""Maximum number of bugs that are named as missing or damaged."""


class DataArguments(CommandArguments):
    """Fetch SWE-SYNTH's bugs from the bucket in which its environment keeps them, as a file of rows.

    Example: longshore data get https://BUCKET/bugs --ids 1-100 --output bugs.jsonl
    """

    action: Positional[Annotated[Literal["get"], option("get")]]
    """The action: get adds to the file the bugs that it does not have yet."""
    url: Positional[Annotated[str, option("URL")]]
    """Public URL of the bucket, with the prefix of the bugs: bug 7 is URL/task_00000000007.json."""
    ids: UseAppendAction[Annotated[tuple[str, ...], repeatable("IDS")]] = ()
    """Numbers of the bugs: numbers and ranges, for example 1-100,205."""
    output: Annotated[Path, option("FILE")] = Path("swe-synth.jsonl")
    """File of rows, for --tasks and data.path."""
    concurrency: Annotated[int, option("N"), Field(ge=1, le=64)] = 8
    """Concurrent requests."""
    as_json: JsonFlag = False


def run(given: DataArguments, out: JsonOutput) -> int:
    """Fetch, and return 0 if every bug is in the file."""
    if not _URL.fullmatch(given.url):
        raise UserError(f"{given.url!r} is no URL of a bucket: write https://HOST/PREFIX")
    numbers = parse_numbers(split_commas(",".join(given.ids)))
    if not numbers:
        raise UserError("--ids names no bug: write the numbers of those that you want, --ids 1-100")
    console = error_console()
    done = asyncio.run(
        fetch_bugs(
            given.url,
            numbers,
            given.output,
            given.concurrency,
            lambda count: console.print(f"{count} of {len(numbers)} asked for"),
        )
    )
    say = output_console().print
    kept = f", {done.kept} were there" if done.kept else ""
    say(f"{done.written} bugs written to {display_path(given.output)}{kept}")
    if done.missing:
        more = " …" if len(done.missing) > _SHOWN else ""
        say(f"{len(done.missing)} are not in the bucket: {', '.join(map(str, done.missing[:_SHOWN]))}{more}")
    for each in done.damaged[:_SHOWN]:
        console.print(f"left out: {each}")
    if done.damaged:
        say(f"{len(done.damaged)} objects are no bugs, and are left out")
    out.set_result(done._asdict() | {"output": str(given.output)})
    return EXIT_FAILED if done.missing or done.damaged else EXIT_OK


COMMAND = Command("data", DataArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
