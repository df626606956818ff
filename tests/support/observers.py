"""Who sees an episode."""

from __future__ import annotations

from dataclasses import dataclass, field

from actors.episode import Graded
from protocol.trajectory import Reward


@dataclass
class FakeObserver:
    """Keeps what the agent said."""

    said: list[str] = field(default_factory=list[str])

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None:
        self.said.append(text)

    def on_call(self, name: str, command: str) -> None: ...
    def on_output(self, text: str) -> None: ...
    def on_result(self, output: str) -> None: ...
    def on_grade(self, graded: Graded, reward: Reward) -> None: ...
