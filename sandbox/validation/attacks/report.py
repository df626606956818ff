"""What a cheat could earn, as one table and one JSON object.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from protocol.cli.output import align_columns
from sandbox.validation.attacks.trial import NOTHING, AttackResult

_SHOWN = 5
"""Maximum number of tasks that are named for an attack."""
_LAST_LINES = 3
"""Maximum number of lines that are shown below the first one of why an attack could not be tried."""


def report_attacks(results: Sequence[AttackResult], say: Callable[[str], None]) -> tuple[int, dict[str, object]]:
    """Report the results; the exit code is 1 if an attack earned more than doing nothing, or could not be tried."""
    idle = {each.task: each.reward or 0.0 for each in results if each.attack == NOTHING.name}
    earned = [each for each in results if (each.reward or 0.0) > idle.get(each.task, 0.0)]
    lost = [each for each in results if each.reward is None]
    rows = [_row(name, results, earned) for name in dict.fromkeys(each.attack for each in results)]
    for line in align_columns([("attack", "tried", "earned", "best", "tasks"), *rows], text_columns=1):
        say(line)
    for line in _lost_lines(lost):
        say(line)
    tried = sum(each.reward is not None and each.attack != NOTHING.name for each in results)
    tasks = "1 task" if len(idle) == 1 else f"{len(idle)} tasks"
    say(f"{len(earned)} of {tried} attacks on {tasks} earned something")
    return 1 if earned or lost else 0, {
        "tasks": len(idle),
        "attacks": tried,
        "earned": [asdict(each) for each in earned],
        "not_tried": [asdict(each) for each in lost],
        "results": [asdict(each) for each in results],
    }


def _row(name: str, results: Sequence[AttackResult], earned: Sequence[AttackResult]) -> tuple[str, ...]:
    tried = [each for each in results if each.attack == name and each.reward is not None]
    best = max((each.reward or 0.0 for each in tried), default=0.0)
    gained = [each.task for each in earned if each.attack == name]
    more = f" and {len(gained) - _SHOWN} more" if len(gained) > _SHOWN else ""
    return name, f"{len(tried)}", f"{len(gained)}", f"{best:g}", ", ".join(gained[:_SHOWN]) + more


def _lost_lines(lost: Sequence[AttackResult]) -> Iterator[str]:
    """Yield each task and reason once, with the reason's last lines."""
    attacks: dict[tuple[str, str], list[str]] = {}
    for each in lost:
        attacks.setdefault((each.task, each.why), []).append(each.attack)
    for (task, why), names in attacks.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        first, *rest = why.strip().splitlines()
        yield f"not tried on {task}: {names[0]}{more}: {first}"
        yield from (f"  {line}" for line in rest[-_LAST_LINES:])
