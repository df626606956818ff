"""Reads what ``pytest -v`` printed, and prints a short summary, as pytest would, of the tests that count.

``python3 count_tests.py OUTPUT NAMES``, NAMES having a name a line.  The worst outcome of a test counts, and one that
is not named is left out.  It runs in containers: only the standard library's smallest part is imported.
"""

import re
import sys
from pathlib import Path

_LINE = re.compile(
    r"(?P<name>\S(?:(?!::).)*::.*?) (?P<outcome>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)"
    r"(?: \(.*\))?\s*(?:\[ *\d+%\])?\s*"
)
_MOST_CHARS = 4096
"""Characters of a longer line are no test's: the pattern takes time by more than a line's length."""


def summarise(output: str, names: list[str]) -> str:
    """Return the summary of the tests that ``names`` lists."""
    outcomes = _outcomes(output)
    lines = [f"{'PASSED' if outcomes[name] == {'PASSED'} else 'FAILED'} {name}" for name in names if name in outcomes]
    return "\n".join(["=== short test summary info ===", *lines, ""])


def passed_tests(output: str) -> set[str]:
    """Return the tests that passed."""
    return {name for name, outcomes in _outcomes(output).items() if outcomes == {"PASSED"}}


def _outcomes(output: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in output.splitlines():
        if len(line) <= _MOST_CHARS and (match := _LINE.fullmatch(line)):
            found.setdefault(match["name"], set()).add(match["outcome"])
    return found


if __name__ == "__main__":
    printed, listed = (Path(path).read_text("utf-8", "replace") for path in sys.argv[1:])
    sys.stdout.write(summarise(printed, listed.splitlines()))
