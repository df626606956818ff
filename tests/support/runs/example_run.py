"""Extends the run of :mod:`tests.support.fakes.fake_run` with everything that the monitor shows.

Trajectories have text and a vocabulary, steps have token values of the learner, and processes have activity.  One group
has a member with a visible failure.  The files are written by the same code as in a real run.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from protocol import codec
from protocol.activity import ActivityLog
from protocol.run_directory.lineage_log import LineageLog
from protocol.run_directory.terminal_recordings import CastWriter, turn_marker_label
from protocol.run_directory.trained_log import PackedTrainedTokens, TokenLossFlag, TrainedTokens, pack_trained_tokens
from protocol.trajectory import (
    EpisodeStatus,
    GroupId,
    Reward,
    RolloutRequest,
    Segment,
    TestResult,
    Trajectory,
    Turn,
    TurnKind,
)
from protocol.weights import NO_VERSION, LineageEntry, make_version
from tests.support.fakes.fake_run import FAMILIES, GROUP_SIZE, FakeRun

SYSTEM = (
    "<|im_start|>system\nYou work in a terminal. Call bash with one command, read what it prints, and go on."
    "<|im_end|>\n"
)
INSTRUCTION = (
    "In /work/input.txt, add up the second column of the rows whose first word has five letters, and write the sum to "
    "/work/answer.txt."
)
TESTS = ("answer exists", "answer is a number", "sum is right", "input is untouched")


class Move(NamedTuple):
    """A model's turn and what the terminal answered."""

    thought: str
    command: str
    output: str
    exit_code: int = 0


LOOK = (
    Move(
        "Let me look at the folder first.",
        "ls -la /work",
        "total 12\ndrwxr-xr-x 2 root root 4096 Nov 21 02:26 .\ndrwxr-xr-x 1 root root 4096 Nov 21 02:26 ..\n"
        "-rw-r--r-- 1 root root  182 Nov 21 02:26 input.txt\n",
    ),
    Move(
        "Now what the file has in it.", "cat /work/input.txt", "alpha 12\nbeta 7\ngamma 31\ndelta 4\nomega 8\nrho 19\n"
    ),
)
GOOD = (
    Move(
        "Five letters: alpha, gamma, delta, omega. I let awk do it.",
        "awk 'length($1)==5 {s+=$2} END {print s}' /work/input.txt",
        "55\n",
    ),
    Move(
        "That is 12 + 31 + 4 + 8. I write it down.",
        "awk 'length($1)==5 {s+=$2} END {print s}' /work/input.txt > /work/answer.txt && cat /work/answer.txt",
        "\x1b[32m55\x1b[0m\n",
    ),
)
BAD = (
    Move(
        "I add up the column.",
        "awk '{s+=$2} END {print s}' input.txt > answer.txt",
        '\x1b[31mawk: cannot open "input.txt" (No such file or directory)\x1b[0m\n',
        2,
    ),
    Move(
        "Once more, with the whole path.",
        "awk '{s+=$2} END {print s}' /work/input.txt > /work/answer.txt; cat /work/answer.txt",
        "81\n",
    ),
)
POOR = (Move("The answer must be a word.", "echo alpha > /work/answer.txt", ""),)


@dataclass
class ExampleRun(FakeRun):
    vocabulary: dict[str, int] = field(default_factory=dict)
    step: int = 0
    trajectories: dict[str, Trajectory] = field(default_factory=dict)
    activity_logs: dict[str, ActivityLog] = field(default_factory=dict)

    def activity_log(self, name: str, kind: str) -> ActivityLog:
        if name not in self.activity_logs:
            self.activity_logs[name] = ActivityLog(self.run_dir, name, kind, self._now, self._now)
        return self.activity_logs[name]

    def begin(self, url: str = "") -> None:
        super().begin(url)
        self.lineage = LineageLog(self.run_dir)
        self.lineage.append(LineageEntry(make_version(1, 0), 0, NO_VERSION))

    def pass_time(self, activity: ActivityLog, state: str, seconds: float) -> None:
        engine = self.activity_log("engine-0", "engine")
        with activity.track(state), engine.track("generating" if state == "generating" else "waiting"):
            self.now += seconds
        activity.write_if_changed()
        engine.write_if_changed()

    def train_step(self, step: int) -> None:
        learner, self.step = self.activity_log("learner-0", "learner"), step
        with learner.track("waiting"):
            ready, zero, rewards = 0, 0, []
            while ready < self.groups_per_step:
                outcome, got = self.run_group(self.level(step))
                ready, zero = ready + (outcome == "ready"), zero + (outcome == "zero_variance")
                rewards += got if outcome == "ready" else []
                learner.write_if_changed()
        with learner.track("training"):
            self.now += 2.4
        records = {name: self.trained_tokens_of(name) for name in self.ready}
        stale = self.ready[-1:] if step % 5 == 0 else []
        trained = [name for name in self.ready if name not in stale]
        self.records.record_step(step, make_version(1, step - 1), trained, dict.fromkeys(stale, "all_stale"), records)
        self.ready = []
        self.write_metrics(step, self.level(step), ready, zero, rewards)
        self.lineage.append(LineageEntry(make_version(1, step), step, make_version(1, step - 1)))
        self.publish(step, learner)

    def publish(self, step: int, learner: ActivityLog) -> None:
        pause, version = self.rng.uniform(70, 160), make_version(1, step)
        self.pauses.append(pause)
        with learner.track("publishing"):
            self.now += 0.3
        learner.write_if_changed()
        with self.activity_log("engine-0", "engine").track("loading"):
            self.now += pause / 1000
        self.log("learner-0").emit("weights.published", version=version, step=step)
        load = {"pause_ms": round(pause, 1), "load_ms": round(pause * 0.7, 1)}
        self.log("engine-0").emit("engine.loaded", engine="engine-0", version=version, **load)
        counts = {
            "live": 14 + self.rng.randint(0, 2),
            "started": self.counts["acknowledged"],
            "waiting": self.rng.randint(0, 3),
        }
        self.log("worker-0").emit("sandbox.counted", **counts)

    def episode(self, group: int, sample: int, task: str, family: str, reward: float, *, finish: bool = True) -> str:
        name, worker = f"train-g{group:06d}-s{sample:02d}-a0", f"worker-{sample % 2}"
        log, activity, begun = self.log(worker), self.activity_log(worker, "worker"), self.now
        fields = {"group": group, "sample": sample, "task": task, "family": family}
        log.emit("episode.started", trajectory=name, **fields, instruction=INSTRUCTION, worker=worker)
        moves = (*LOOK, *(GOOD if reward >= 1 else BAD if reward > 0 else (*BAD[:1], *POOR)))
        versions = [make_version(1, max(0, self.step - 2)), make_version(1, max(0, self.step - 1))]
        self.pass_time(activity, "starting", 0.2)
        path, sampled = self.run_dir / "terminals" / f"{name}.cast", 0
        with CastWriter.open(path, 90, 24, INSTRUCTION, clock=self._now, now=self._now) as cast:
            for turn, move in enumerate(moves[: None if finish else 2 + sample % 2]):
                sampled += len(pieces(render_move(move)))
                cast.record_marker(turn_marker_label(turn))
                self.pass_time(activity, "generating", self.rng.uniform(0.3, 0.9))
                log.emit("episode.turn", trajectory=name, turn=turn, sampled=sampled, versions=versions, ms=600.0)
                log.emit("episode.tool", trajectory=name, tool="bash", command=move.command)
                cast.record_note(move.thought)
                cast.record_command(move.command)
                self.pass_time(activity, "tool", 0.4 + 4 * (turn == 1 and sample == 1))
                cast.record_output(move.output)
            if not finish:
                return name
            self.pass_time(activity, "grading", 0.2)
            cast.record_note(f"{round(4 * reward)} of 4 hidden tests passed, reward {reward:g}")
        status = "completed" if reward else self.rng.choice(("turn_limit", "completed", "malformed_limit"))
        ms = {"acquire": 12.0, "generate": 2_400.0, "tool": 1_640.0, "grade": 220.0, "total": 1000 * (self.now - begun)}
        log.emit(
            "episode.finished", trajectory=name, status=status, reward=reward, sampled=sampled, turns=len(moves), ms=ms
        )
        self.counts["acknowledged"] += 1
        self.sampled_tokens += sampled
        self.store(
            self.trajectory(
                RolloutRequest(self.run_dir.name, GroupId(group), sample, GROUP_SIZE, task, sample),
                status,
                reward,
                moves,
                ms,
            )
        )
        return name

    def trajectory(
        self, request: RolloutRequest, status: str, reward: float, moves: Sequence[Move], ms: dict[str, float]
    ) -> Trajectory:
        passed = round(4 * reward)
        tests = tuple(TestResult(name, number < passed) for number, name in enumerate(TESTS))
        parts = {"tests": reward, "brevity": 0.05 if len(moves) < 4 else 0.0}
        return Trajectory(
            request, EpisodeStatus(status), Reward(reward, parts), (self.segment(moves),), tests,
            engine="engine-0", node="node-0", worker=f"worker-{request.sample % 2}",
            started_at=self.now - ms["total"] / 1000, timings_ms=ms,
        )  # fmt: skip

    def segment(self, moves: Sequence[Move]) -> Segment:
        prompt = f"{SYSTEM}<|im_start|>user\n{INSTRUCTION}<|im_end|>\n<|im_start|>assistant\n"
        ids, mask, turns = self.ids(prompt), [], []
        turns.append(Turn(TurnKind.PROMPT, 0, len(ids)))
        mask += [0] * len(ids)
        for move in moves:
            spoken, answer = (
                self.ids(render_move(move)),
                self.ids(f"<|im_start|>tool\n{move.output}<|im_end|>\n<|im_start|>assistant\n"),
            )
            start, middle = len(ids), len(ids) + len(spoken)
            key = make_version(1, max(0, self.step - 1))
            turns.append(Turn(TurnKind.MODEL, start, middle, duration_ms=620.0, key_version=key))
            turns.append(Turn(TurnKind.OBSERVATION, middle, middle + len(answer), "bash", move.exit_code, 41.0))
            ids, mask = ids + spoken + answer, mask + [1] * len(spoken) + [0] * len(answer)
        rng = np.random.default_rng(len(ids))
        sampled = np.array(mask, np.uint8)
        logprobs = (-rng.exponential(0.35, len(ids)) * sampled).astype(np.float32)
        older = np.arange(len(ids)) < len(ids) // 2
        version = np.where(older, make_version(1, max(0, self.step - 2)), make_version(1, max(0, self.step - 1)))
        versions = np.where(sampled == 1, version, -1).astype(np.int32)
        return Segment(np.array(ids, np.int32), sampled, logprobs, versions, tuple(turns))

    def ids(self, text: str) -> list[int]:
        return [self.vocabulary.setdefault(piece, len(self.vocabulary)) for piece in pieces(text)]

    def store(self, trajectory: Trajectory) -> None:
        blob = codec.pack_trajectory(trajectory)
        summary = codec.inspect_blob(blob)
        self.exporter.export_trajectory(summary, blob)
        self.trajectories[trajectory.request.trajectory_id] = trajectory
        request = trajectory.request
        row = {
            "trajectory": request.trajectory_id,
            "group": request.group,
            "sample": request.sample,
            "outcome": "appended",
        }
        counts = {"tokens": summary.tokens, "sampled": summary.sampled}
        self.log("buffer").emit(
            "trajectory.stored", **row, **counts, status=trajectory.status.value, reward=trajectory.reward.total
        )

    def trained_tokens_of(self, name: str) -> PackedTrainedTokens:
        """Return per-token training facts of a step: the advantage within the group, and a logprob gap wide for a few
        tokens."""
        trajectory = self.trajectories[name]
        group = [
            each.reward.total for each in self.trajectories.values() if each.request.group == trajectory.request.group
        ]
        advantage = (trajectory.reward.total - float(np.mean(group))) / (float(np.std(group)) + 1e-6)
        (segment,) = trajectory.segments
        trained, rng = segment.loss_mask == 1, np.random.default_rng(trajectory.request.sample)
        gap = rng.normal(0, 0.01, len(segment)) + 0.4 * (rng.random(len(segment)) > 0.97)
        marks = np.where(
            trained & (gap > 0.3), np.uint8(TokenLossFlag.HIGH if advantage > 0 else TokenLossFlag.LOW), 0
        ).astype(np.uint8)
        logprobs = np.where(trained, segment.logprobs + gap, np.nan).astype(np.float32)
        facts = TrainedTokens(logprobs, np.where(trained, advantage, np.nan).astype(np.float32), marks)
        return PackedTrainedTokens(pack_trained_tokens(facts), advantage, float(np.abs(gap[trained]).mean()))

    def close(self) -> None:
        model = self.run_dir / "model"
        model.mkdir(exist_ok=True)
        (model / "tokenizer.json").write_text(json.dumps({"model": {"vocab": self.vocabulary}}))
        super().close()


def pieces(text: str) -> list[str]:
    """Words with the space before them, and signs, as a tokenizer would cut them."""
    return re.findall(r"<\|\w+\|>| ?[A-Za-z]{1,7}| ?\d{1,3}|\n+| ?[^\sA-Za-z\d]|\s", text)


def render_move(move: Move) -> str:
    call = f'{{"name": "bash", "arguments": {{"command": "{move.command}"}}}}'
    return f"{move.thought}\n<tool_call>\n{call}\n</tool_call><|im_end|>\n"


def write_example_run(run_dir: Path, *, steps: int = 24, taken: int = 18, seconds: float = 620) -> ExampleRun:
    """A run in the middle: ``taken`` of ``steps`` steps, then ten episodes that go on, and an alert of each kind.

    It began ``seconds`` ago, about as long as it takes."""
    run = ExampleRun(run_dir, steps=steps, start=time.time() - seconds)
    run.begin()
    run.evaluate("before", 0.2)
    run.phase("training")
    for step in range(1, taken + 1):
        run.train_step(step)
    driver = run.log("driver")
    driver.emit(
        "alert.raised",
        name="zero_variance",
        text="61 % of the groups of the last 8 steps have no variance: harder tasks, or rollout.group_size above 8",
        health=False,
    )
    driver.emit(
        "alert.raised",
        name="disk",
        text="the disk of the run directory has 3.1 GB left, enough for about 40 steps: longshore runs prune",
        health=True,
    )
    for number in range(2):
        group, family = run.group + number, FAMILIES[number]
        task = f"{family}-{group:04d}"
        run.log("scheduler").emit("group.opened", group=group, task=task, size=GROUP_SIZE)
        for sample in range(5):
            run.episode(group, sample, task, family, 0, finish=False)
    run.close()
    return run


if __name__ == "__main__":
    write_example_run(Path(sys.argv[1]))
