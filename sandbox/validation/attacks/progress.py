"""Progress of attacks."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console

from protocol.cli.progress import show_progress
from sandbox.validation.attacks.trial import AttackResult


@contextmanager
def report_attack_progress(total: int, console: Console) -> Generator[Callable[[AttackResult], None]]:
    """Yield a function that shows each result's arrival; ``total`` are expected."""
    done = lost = 0
    with show_progress(total, console) as show:

        def add(result: AttackResult) -> None:
            nonlocal done, lost
            done, lost = done + 1, lost + (result.reward is None)
            show(done, f"attacks: {done} of {total} done" + (f", {lost} could not be tried" if lost else ""))

        yield add
