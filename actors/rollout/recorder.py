"""Observers that record an episode: its terminal recording and its events."""

from __future__ import annotations

from pathlib import Path

from actors.rollout.terminal import EpisodeGrade
from protocol.events import EventLog
from protocol.run_directory.page_pictures import OPENING, PictureWriter, pictures_path
from protocol.run_directory.terminal_recordings import MAX_CAST_BYTES, CastWriter, turn_marker_label
from protocol.trajectory import Reward, RolloutRequest, Trajectory
from sandbox.tasks.task import Task

_WIDTH, _HEIGHT = 100, 30
_STREAMED_CHARS, _END_CHARS = 16_000, 4_000
"""Maximum number of recorded characters of one call's output, streamed and at its end; a noisy call so leaves room for
later ones."""


class TerminalRecorder:
    """Records the terminal, and the pages of a browser.  An :class:`actors.rollout.observer.EpisodeObserver` that must
    be closed."""

    def __init__(self, file: Path, title: str, pictures: PictureWriter, max_bytes: int = MAX_CAST_BYTES) -> None:
        self._streamed, self._turn, self.pictures = 0, OPENING, pictures
        self._cast = CastWriter.open(file, _WIDTH, _HEIGHT, title, max_bytes=max_bytes)

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None:
        del sampled, versions, ms
        self._turn = turn
        self._cast.record_marker(turn_marker_label(turn))
        self._cast.record_note(text)

    def on_call(self, name: str, command: str) -> None:
        del name
        self._streamed = 0
        self._cast.record_command(command)

    def on_output(self, text: str) -> None:
        if (room := _STREAMED_CHARS - self._streamed) > 0:
            self._cast.record_output(text[:room])
        self._streamed += len(text)

    def on_result(self, output: str) -> None:
        """Record the part of a call's output that was not streamed; if it is long, only its end."""
        if not self._streamed:
            self._cast.record_output(output)
        elif (hidden := self._streamed - _STREAMED_CHARS) > 0:
            self._cast.record_note(f"{hidden:,} more characters; the end:")
            self._cast.record_output(output[-min(hidden, _END_CHARS) :])

    def on_picture(self, picture: bytes) -> None:
        self.pictures.record(self._turn, picture)

    def on_grade(self, graded: EpisodeGrade, reward: Reward) -> None:
        passed = sum(test.passed for test in graded.tests)
        self._cast.record_note(f"{passed} of {len(graded.tests)} hidden tests passed, reward {reward.total:g}")
        if graded.suspicious:
            self._cast.record_note("this episode needs a look: " + "; ".join(graded.suspicious))

    def close(self) -> None:
        """End the recording."""
        if self.pictures.refused:
            self._cast.record_note(f"{self.pictures.refused} pictures of pages are left out: too many, or no JPEG")
        self._cast.close()


class EpisodeTelemetry:
    """Records the terminal and emits the episode's events."""

    def __init__(
        self,
        events: EventLog,
        run_dir: Path,
        request: RolloutRequest,
        task: Task,
        worker: str,
        *,
        picture_budget_bytes: int = 0,
    ) -> None:
        self._events, self._id, self._isolation = events, request.attempt_id, ""
        self._pictures = PictureWriter(pictures_path(run_dir, self._id), picture_budget_bytes)
        cast = run_dir / "terminals" / f"{self._id}.cast"
        self._terminal = TerminalRecorder(cast, task.instruction, self._pictures)
        events.emit(
            "episode.started",
            trajectory=self._id,
            group=request.group,
            sample=request.sample,
            task=task.id,
            family=task.family,
            instruction=task.instruction,
            worker=worker,
        )

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None:
        self._terminal.on_turn(turn, text, sampled, versions, ms)
        self._events.emit(
            "episode.turn",
            trajectory=self._id,
            turn=turn,
            sampled=sampled,
            versions=list(versions),
            ms=round(ms, 1),
        )

    def on_call(self, name: str, command: str) -> None:
        self._terminal.on_call(name, command)
        self._events.emit("episode.tool", trajectory=self._id, tool=name, command=command[:500])

    def on_output(self, text: str) -> None:
        self._terminal.on_output(text)

    def on_result(self, output: str) -> None:
        self._terminal.on_result(output)

    def on_picture(self, picture: bytes) -> None:
        self._terminal.on_picture(picture)

    def on_grade(self, graded: EpisodeGrade, reward: Reward) -> None:
        self._terminal.on_grade(graded, reward)
        self._isolation = graded.isolation
        if graded.suspicious:
            self._events.emit("episode.suspicious", trajectory=self._id, why=list(graded.suspicious))

    def record_finished(self, trajectory: Trajectory) -> None:
        """Emit that the episode ended in ``trajectory``."""
        self._events.emit(
            "episode.finished",
            trajectory=self._id,
            status=trajectory.status.value,
            isolation=self._isolation,
            reward=trajectory.reward.total,
            parts={name: round(value, 6) for name, value in trajectory.reward.parts.items()},
            sampled=trajectory.sampled_tokens,
            turns=sum(turn.kind == "model" for segment in trajectory.segments for turn in segment.turns),
            ms={stage: round(ms, 1) for stage, ms in trajectory.timings_ms.items()},
        )

    def close(self) -> None:
        """End the recording, and tell whose pictures it took the place of."""
        if self._pictures.removed:
            self._events.emit("pictures.removed", trajectory=self._id, episodes=self._pictures.removed)
        self._terminal.close()
