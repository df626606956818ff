"""The observer of an episode, for recordings and telemetry.  It never raises and never decides anything."""

from __future__ import annotations

from typing import Protocol

from actors.rollout.terminal import EpisodeGrade
from protocol.trajectory import Reward


class EpisodeObserver(Protocol):
    """Sees the episode as it happens."""

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None:
        """The model replied with ``text`` in ``sampled`` tokens; ``ms`` is the time from the request to the whole
        reply, ``versions`` are the oldest and the newest weights that sampled it."""

    def on_call(self, name: str, command: str) -> None:
        """A tool call begins."""

    def on_output(self, text: str) -> None:
        """A part of the call's output arrived; some tools send all of it at their end."""

    def on_result(self, output: str) -> None:
        """The call ended; ``output`` is its whole output."""

    def on_picture(self, picture: bytes) -> None:
        """The call left the agent's browser showing this, a JPEG; before the first turn, the browser began with it."""

    def on_grade(self, graded: EpisodeGrade, reward: Reward) -> None:
        """The episode was graded."""
