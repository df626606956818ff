"""The task cursor: which task next.  Pure; its state travels with every group into the journal."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import orjson


@dataclass(slots=True)
class TaskCursor:
    """Walks ``tasks`` in order, epoch after epoch, and never skips or repeats one across a resume.

    The order inside an epoch is a shuffle by ``seed`` and epoch of whole rounds: tasks come as the data set lists them
    (families in rotation), only the starting point of each round moves.  A task given back comes once more, first.
    """

    tasks: tuple[str, ...]
    seed: int
    position: int = 0
    next_group: int = 0
    returned: list[str] = field(default_factory=list[str])
    returned_once: set[str] = field(default_factory=set[str])

    def take(self) -> tuple[int, str]:
        """The next group id and its task."""
        if self.returned:
            task = self.returned.pop(0)
        else:
            epoch, index = divmod(self.position, len(self.tasks))
            shift = random.Random(f"{self.seed}/{epoch}").randrange(len(self.tasks)) if epoch else 0
            task = self.tasks[(index + shift) % len(self.tasks)]
            self.position += 1
        group = self.next_group
        self.next_group += 1
        return group, task

    def give_back(self, task: str) -> None:
        """Infrastructure wasted this task's group: it comes once more, and only once."""
        if task not in self.returned_once:
            self.returned_once.add(task)
            self.returned.append(task)

    def state(self) -> bytes:
        return orjson.dumps(
            {
                "position": self.position,
                "next_group": self.next_group,
                "returned": self.returned,
                "returned_once": sorted(self.returned_once),
            }
        )

    def restore(self, state: bytes) -> None:
        """Continue where ``state`` was taken."""
        saved = orjson.loads(state)
        self.position, self.next_group = int(saved["position"]), int(saved["next_group"])
        self.returned, self.returned_once = list(saved["returned"]), set(saved["returned_once"])
