"""Count what the linters were told to overlook; fail where an ignore names no rule or gives no reason.

`# noqa: S606  the same interpreter, in this process`: rule first, then why.  `# type: ignore` is not for us: write
`# pyright: ignore[rule]  why`.  A comment that changes a whole file's settings (`# pyright: …`, `# ruff: noqa: …`)
has its reason at its end or in the other lines of the same block of comments.  In pyproject.toml each rule that ruff is
to overlook has a line of its own, with the reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LINE = re.compile(
    r"#\s*(?P<tool>noqa|pyright:\s*ignore|type:\s*ignore)\b"
    r"(?P<rules>:\s*[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*|\[[\w\s,-]+\])?(?P<reason>.*)"
)
FILE = re.compile(
    r"#\s*(?P<tool>pyright|ruff):\s*(?P<rules>basic|strict|(?:report\w+=\w+,?\s*)+|"
    r"noqa(?::\s*[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*)?)(?P<reason>.*)"
)
CONFIGURED = re.compile(r"\s*(?P<rules>\"[A-Z]+[0-9]*\",?(?:\s*\"[A-Z]+[0-9]*\",?)*)\s*(?:#(?P<reason>.*))?")
REASON_LETTERS = 6


class Ignore(NamedTuple):
    path: Path
    line: int
    tool: str
    rules: str
    reason: str
    problem: str


def ignores(path: Path) -> list[Ignore]:
    """Return every ignore in one file."""
    try:
        with path.open("rb") as file:
            tokens = [token for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]
    except (tokenize.TokenError, SyntaxError) as error:
        return [Ignore(path, 0, "unreadable", "", str(error), "not Python")]
    comments = {token.start[0]: token.string for token in tokens}
    found: list[Ignore] = []
    for line, comment in comments.items():
        if match := FILE.search(comment):
            reason = " ".join(block(comments, line))
        elif match := LINE.search(comment):
            reason = match["reason"]
        else:
            continue
        reason = reason.strip(" \t#-–:()")
        tool, rules = match["tool"].partition(":")[0], (match["rules"] or "").removeprefix("noqa").strip(": [],")
        problem = ""
        if tool == "type":
            problem = "write `# pyright: ignore[rule]  why`"
        elif tool == "pyright" and path.relative_to(ROOT).parts[0] == "tests":
            problem = "pyright does not read tests: leave it out"
        elif not rules:
            problem = "name the rule"
        elif len(re.findall(r"\w", reason)) < REASON_LETTERS:
            problem = "give the reason after the rule"
        found.append(Ignore(path, line, tool, rules, reason, problem))
    return found


def configured_ignores(path: Path) -> list[Ignore]:
    """Return every line of pyproject.toml that switches off rules of ruff."""
    found: list[Ignore] = []
    table, key = "", ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("["):
            table, key = line.strip("[]"), ""
        elif opened := re.match(r'("[^"]+"|[\w-]+) = \[', line):
            key = opened[1]
        off = table == "tool.ruff.lint.per-file-ignores" or (table, key) == ("tool.ruff.lint", "ignore")
        if off and (match := CONFIGURED.fullmatch(line)):
            reason = (match["reason"] or "").strip()
            problem = "" if len(re.findall(r"\w", reason)) >= REASON_LETTERS else "give the reason after the rule"
            found.append(Ignore(path, number, f"ruff in {key}", match["rules"].rstrip(","), reason, problem))
    return found


def block(comments: dict[int, str], line: int) -> list[str]:
    """Return the comment lines of the block around a line, without its settings."""
    first, last = line, line
    while first - 1 in comments:
        first -= 1
    while last + 1 in comments:
        last += 1
    return [FILE.sub(r"\g<reason>", comments[at]).strip("# ") for at in range(first, last + 1)]


def main() -> int:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in sorted(listed.stdout.split("\0")) if name]
    found = [ignore for path in paths if path.is_file() for ignore in ignores(path)]
    found += configured_ignores(ROOT / "pyproject.toml")
    for ignore in found:
        where = f"{ignore.path.relative_to(ROOT)}:{ignore.line}"
        mark = f"  ← {ignore.problem}" if ignore.problem else ""
        sys.stdout.write(f"{where}: {ignore.tool} {ignore.rules}: {ignore.reason}{mark}\n")
    counts = ", ".join(f"{count} {tool}" for tool, count in sorted(Counter(ignore.tool for ignore in found).items()))
    bad = sum(bool(ignore.problem) for ignore in found)
    sys.stdout.write(f"{len(found)} ignores ({counts or 'none'}), {bad} without rule or reason\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
