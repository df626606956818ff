"""``longshore journal check|recover RUN``: check or repair the journal of a run that is not running.

``check`` reads every page and every payload.  ``recover`` makes a new journal from everything readable around bad
pages: it rebuilds rows from trajectories, takes missing trajectories from the export, and keeps the damaged file beside
the new one.  Exit code 0: intact, or recovered without a loss; 1: damaged, or something was lost; 2: the user can fix
it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import subcommand

from protocol.cli.arguments import CommandArguments, JsonFlag
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, output_console
from protocol.journal.repair import JOURNAL_FILE, check_journal, recover_journal
from protocol.run_directory.layout import NoSuchRunError
from protocol.run_directory.run_arguments import RunPath


class CheckJournalArguments(CommandArguments):
    """Read and verify every page and every payload."""

    run: RunPath
    as_json: JsonFlag = False


class RecoverJournalArguments(CommandArguments):
    """Build a new journal from everything readable, and keep the damaged file beside it."""

    run: RunPath
    as_json: JsonFlag = False


class JournalArguments(CommandArguments):
    """Check or repair the journal of a run that is not running.

    Example: longshore journal check runs/demo-1
    """

    command: (
        Annotated[CheckJournalArguments, subcommand("check")]
        | Annotated[RecoverJournalArguments, subcommand("recover")]
    )


def run(given: JournalArguments, out: JsonOutput) -> int:
    """Return 0 if the journal is intact or was recovered without a loss."""
    command = given.command
    if not command.run.is_dir():
        raise NoSuchRunError(command.run)
    result, lines = _check(command.run) if isinstance(command, CheckJournalArguments) else _recover(command.run)
    out.set_result(result)
    for line in lines:
        output_console().print(line)
    return EXIT_OK if result["ok"] else EXIT_FAILED


def _check(run_dir: Path) -> tuple[dict[str, object], list[str]]:
    found = check_journal(run_dir / JOURNAL_FILE)
    result: dict[str, object] = {
        "ok": found.whole,
        "damage": found.damage,
        "payloads": found.payloads,
        "bad_payloads": found.bad_payloads,
        "missing_payloads": found.missing_payloads,
    }
    lines = [f"{found.payloads} trajectories are stored intact"]
    if not found.whole:
        bad = len(found.bad_payloads) + len(found.missing_payloads)
        lines += [*found.damage, f"{bad} are damaged or missing: longshore journal recover {run_dir}"]
    return result, lines


def _recover(run_dir: Path) -> tuple[dict[str, object], list[str]]:
    recovery = recover_journal(run_dir)
    result: dict[str, object] = {
        "ok": not (recovery.lost or recovery.forgotten_groups),
        "damaged_file": str(recovery.damaged_file),
        "rows": recovery.rows,
        "rebuilt": recovery.rebuilt,
        "payloads": recovery.payloads,
        "from_export": recovery.from_export,
        "lost": recovery.lost,
        "forgotten_groups": recovery.forgotten_groups,
    }
    kept = f"{recovery.payloads} payloads kept, {recovery.from_export} taken from the export"
    rows = f"{recovery.rows} trajectories in the journal, {recovery.rebuilt} of them rebuilt"
    lines = [f"{rows}: {kept}; the damaged file is {recovery.damaged_file}"]
    lines += [f"lost: {name}" for name in recovery.lost]
    lines += [f"forgotten: group {group}, whose task is skipped" for group in recovery.forgotten_groups]
    return result, lines


COMMAND = Command("journal", JournalArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
