"""``python -m protocol.journal check|recover RUN_DIR``: look at the journal of a run that is not running, or repair it.

``check`` reads every page and every payload.  ``recover`` makes a new journal of what can be read around bad pages,
with rows rebuilt from trajectories, and trajectories from the export where the journal's own are gone, and keeps the
damaged file beside it.  Exit code 0: whole, or recovered without a loss; 1: damaged, or something was lost; 2: the
person can mend it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK, main_guard
from protocol.cli.parser import CommandLineParser, parse_command_line
from protocol.journal.repair import JOURNAL_FILE, check_journal, recover_journal


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = CommandLineParser(prog="python -m protocol.journal", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("command", choices=["check", "recover"])
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    with parse_command_line(parser, arguments) as (given, out):
        done, said = _check(given.run_dir) if given.command == "check" else _recover(given.run_dir)
        sys.stderr.write("".join(f"{line}\n" for line in said))
        out.set_result(done)
        return EXIT_OK if done["ok"] else EXIT_FAILED


def _check(run_dir: Path) -> tuple[dict[str, object], list[str]]:
    found = check_journal(run_dir / JOURNAL_FILE)
    done: dict[str, object] = {
        "ok": found.whole,
        "damage": found.damage,
        "payloads": found.payloads,
        "bad_payloads": found.bad_payloads,
        "missing_payloads": found.missing_payloads,
    }
    said = [f"{found.payloads} trajectories are stored as they were acknowledged"]
    if not found.whole:
        bad = len(found.bad_payloads) + len(found.missing_payloads)
        said += [*found.damage, f"{bad} are not: python -m protocol.journal recover {run_dir}"]
    return done, said


def _recover(run_dir: Path) -> tuple[dict[str, object], list[str]]:
    recovery = recover_journal(run_dir)
    done: dict[str, object] = {
        "ok": not (recovery.lost or recovery.forgotten_groups),
        "kept_beside": str(recovery.kept_beside),
        "rows": recovery.rows,
        "rebuilt": recovery.rebuilt,
        "payloads": recovery.payloads,
        "from_export": recovery.from_export,
        "lost": recovery.lost,
        "forgotten_groups": recovery.forgotten_groups,
    }
    kept = f"{recovery.payloads} payloads kept, {recovery.from_export} taken from the export"
    rows = f"{recovery.rows} trajectories in the books, {recovery.rebuilt} of them rebuilt"
    said = [f"{rows}: {kept}; the damaged file is {recovery.kept_beside}"]
    said += [f"lost: {name}" for name in recovery.lost]
    said += [f"forgotten: group {group}, whose task is skipped" for group in recovery.forgotten_groups]
    return done, said


if __name__ == "__main__":
    sys.exit(main_guard(main))
