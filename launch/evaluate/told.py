"""What an attempt says of itself to whoever keeps trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from actors.episode import Graded
from protocol.events import Json
from protocol.trajectory import Reward, Segment


class Unobserved:
    """Nobody watches."""

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None: ...
    def on_call(self, name: str, command: str) -> None: ...
    def on_output(self, text: str) -> None: ...
    def on_result(self, output: str) -> None: ...
    def on_grade(self, graded: Graded, reward: Reward) -> None: ...


def told_segments(segments: Sequence[Segment]) -> list[Json]:
    return [
        {
            "token_ids": cast("Json", segment.token_ids.tolist()),
            "loss_mask": cast("Json", segment.loss_mask.tolist()),
            "logprobs": cast("Json", segment.logprobs.tolist()),
        }
        for segment in segments
    ]
