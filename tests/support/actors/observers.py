"""A fake observer of episodes and a fake reward."""

from __future__ import annotations

from dataclasses import dataclass, field

from actors.rewards.composite import EpisodeReward
from actors.rewards.episode_result import EpisodeResult
from actors.rollout.terminal import EpisodeGrade
from protocol.trajectory import Reward


@dataclass
class FakeObserver:
    """Keeps what the agent said, and what was suspicious in its work."""

    texts: list[str] = field(default_factory=list[str])
    suspicious: list[str] = field(default_factory=list[str])

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None:
        self.texts.append(text)

    def on_call(self, name: str, command: str) -> None: ...
    def on_output(self, text: str) -> None: ...
    def on_result(self, output: str) -> None: ...
    def on_picture(self, picture: bytes) -> None: ...

    def on_grade(self, graded: EpisodeGrade, reward: Reward) -> None:
        self.suspicious.extend(graded.suspicious)


@dataclass
class FakeReward:
    """Keeps what it was asked about, and gives each turn a tenth of its number, from 1."""

    received_results: list[EpisodeResult] = field(default_factory=list[EpisodeResult])

    async def compute_reward(self, result: EpisodeResult) -> EpisodeReward:
        self.received_results.append(result)
        return EpisodeReward(Reward(0.5, {"fake": 0.5}), tuple((n + 1) / 10 for n in range(len(result.turns))))
