"""Checks each command's answer and what its sandbox executed. Pure: text in, verdicts out.

A nonce names the run, the session and the command, so that a misplaced one reveals its source. A command writes its
nonce to a file in the sandbox before it does anything and prints it after it has done everything.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Set as AbstractSet
from enum import StrEnum

LEDGER_FILE = "/tmp/longshore-stress-ledger"  # noqa: S108  the sandbox's
_FORM = re.compile(r"nonce-[0-9a-f]{8}-\d+-\d+-end")


class NonceVerdict(StrEnum):
    RIGHT = "right"
    LOST = "lost"
    """The nonce did not come back."""
    TWICE = "twice"
    FOREIGN = "foreign"
    """Another command's nonce came back."""


def make_nonce(run: str, session: int, number: int) -> str:
    """Return a command's nonce; ``run`` is eight hexadecimal digits."""
    return f"nonce-{run}-{session}-{number}-end"


def mark_command(command: str, own: str, *, answer: bool = True) -> str:
    """Return ``command`` with its nonce written to the ledger before it and, for an ``answer``, printed after it."""
    text = f"echo {own} >>{LEDGER_FILE}; eval {shlex.quote(command)}"
    return f"{text}\necho {own}" if answer else text


def check_nonce(output: str, own: str) -> NonceVerdict:
    found = _FORM.findall(output)
    if any(each != own for each in found):
        return NonceVerdict.FOREIGN
    if not found:
        return NonceVerdict.LOST
    return NonceVerdict.RIGHT if len(found) == 1 else NonceVerdict.TWICE


def find_ledger_problems(
    text: str, run: str, session: int, sent: AbstractSet[int], answered: AbstractSet[int]
) -> list[str]:
    """Return the problems of a sandbox's ledger: a command executed twice, one that was never sent, one that was
    answered but not executed."""
    lines = Counter(text.split())
    known = {make_nonce(run, session, number): number for number in sent}
    problems = [f"{line} executed {count} times" for line, count in lines.items() if count > 1]
    problems += [f"{line!r} executed, but never sent" for line in lines if line not in known]
    executed = {known[line] for line in lines if line in known}
    return problems + [
        f"{make_nonce(run, session, number)} answered, but never executed" for number in sorted(answered - executed)
    ]
