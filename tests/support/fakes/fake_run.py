"""A fake run directory, realistic in its shapes and made up in its numbers: for tests of readers and for screenshots.

``python -m tests.support.fakes.fake_run DIR [--live]`` writes one; with ``--live`` it stays unfinished and grows.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np

from launch.run_records.metrics_log import MetricsLog
from launch.run_records.step_facts import StepFacts
from protocol import codec
from protocol.events import EventLog
from protocol.run_directory.terminal_recordings import CastWriter, turn_marker_label
from protocol.run_directory.trained_log import TrainedLog
from protocol.run_directory.trajectory_export import TrajectoryExporter
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
from protocol.weights import make_version

FAMILIES = ("copy_lines", "count_words", "fix_script", "rename_files", "sum_column", "find_largest")
HELD_OUT = ("sort_unique", "parse_log")
GROUP_SIZE, MAX_STALENESS = 8, 2

_COMMANDS = (
    (
        "ls -la",
        "total 12\ndrwxr-xr-x 2 root root 4096 Nov 21 02:26 .\n-rw-r--r-- 1 root root  182 Nov 21 02:26 input.txt\n",
    ),
    ("cat input.txt", "alpha 12\nbeta 7\ngamma 31\ndelta 4\n"),
    ("awk '{s+=$2} END {print s}' input.txt", "54\n"),
    ("sort -k2 -n -r input.txt | head -1", "gamma 31\n"),
    ("grep -c . input.txt", "4\n"),
    ("sed -n '2p' missing.txt", "\x1b[31msed: can't read missing.txt: No such file or directory\x1b[0m\n"),
    ("mkdir -p out && cp input.txt out/", ""),
    ("python3 - <<'PY'\nprint(sum(range(10)))\nPY", "45\n"),
    ("echo 54 > answer.txt && cat answer.txt", "54\n"),
    ("ls --color=always", "\x1b[0m\x1b[01;34mout\x1b[0m  answer.txt  input.txt\n"),
)


@dataclass
class FakeRun:
    """Writes a run's files; time is its own, so that a run of minutes takes no time to make."""

    run_dir: Path
    steps: int = 24
    seed: int = 0
    groups_per_step: int = 4
    start: float = 1_795_000_000.0
    dropped_extra: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.now, self.rng = self.start, random.Random(self.seed)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        for folder in ("terminals", "trajectories", "starts/1/logs"):
            (self.run_dir / folder).mkdir(parents=True, exist_ok=True)
        self.logs: dict[str, EventLog] = {}
        self.exporter, self.records = (
            TrajectoryExporter(self.run_dir, now=self._now),
            TrainedLog(self.run_dir, now=self._now),
        )
        self.ready: list[str] = []
        self.group = 0
        self.counts = {"acknowledged": 0, "trained": 0, "superseded": 0, "in_buffer": 0}
        self.dropped: dict[str, int] = {}
        self.trained_tokens = self.masked_tokens = self.sampled_tokens = 0
        self.pauses: list[float] = []
        self.staleness_max = 0
        self.staleness: list[int] = []
        self.metrics = MetricsLog(self.run_dir, self._now, self._now)
        self.evaluations: dict[str, dict[str, object]] = {}
        self.families: dict[str, dict[str, dict[str, object]]] = {}

    def log(self, writer: str) -> EventLog:
        if writer not in self.logs:
            node = "node-0" if writer != "worker-1" else "node-1"
            self.logs[writer] = EventLog(self.run_dir, writer, node, self._now, steady=None)
        return self.logs[writer]

    def _now(self) -> float:
        return self.now

    def write_config(self) -> None:
        config = {
            "run_id": self.run_dir.name,
            "commit": "3fd7292",
            "config": {
                "engine": {"update_timeout_s": 60.0},
                "run": {"name": "demo", "seed": self.seed, "steps": self.steps, "mode": "async"},
                "model": {"layers": 2, "hidden": 160, "vocab_tokens": 1024},
                "rollout": {"groups_per_step": self.groups_per_step, "group_size": GROUP_SIZE},
                "staleness": {"max_staleness": MAX_STALENESS, "policy": "mask"},
                "learner": {"lr": 5e-4, "eps_low": 0.2, "eps_high": 0.28},
            },
        }
        (self.run_dir / "config.json").write_text(json.dumps(config, indent=2))

    def begin(self, url: str = "") -> None:
        self.write_config()
        run = self.log("driver")
        run.emit(
            "run.started",
            run=self.run_dir.name,
            recipe="demo",
            mode="async",
            nodes=2,
            seed=self.seed,
            steps=self.steps,
            url=url,
            max_staleness=MAX_STALENESS,
        )
        for node in ("node-0", "node-1"):
            run.emit("node.up", name=node)
        self.phase("engine", "1 × SGLang, cpu")
        self.now += 21
        self.log("engine-0").emit("engine.started", engine="engine-0", version=make_version(1, 0))
        self.phase("model", "Qwen3-shaped, 0.8 M parameters")
        self.now += 4
        for worker in ("worker-0", "worker-1"):
            self.log(worker).emit("worker.started", worker=worker)
        self.phase("warm_start")
        for step in range(0, 801, 50):
            self.now += 3
            run.emit("warm_start.progress", step=step, steps=800, loss=4.2 * math.exp(-step / 240) + 0.31)

    def phase(self, name: str, detail: str = "") -> None:
        self.log("driver").emit("run.phase", phase=name, detail=detail)

    def evaluate(self, name: str, level: float) -> None:
        self.phase(f"evaluation_{name}")
        families = {}
        for family in FAMILIES + HELD_OUT:
            score = min(1.0, max(0.0, level + self.rng.uniform(-0.12, 0.12) - (0.1 if family in HELD_OUT else 0)))
            families[family] = {"pass_at_1": round(score, 4), "n": 24}
        total = 24 * len(families)
        mean = sum(value["pass_at_1"] for value in families.values()) / len(families)
        for done in range(0, total + 1, 16):
            self.now += 1.5
            self.log("driver").emit("evaluation.progress", name=name, done=done, total=total, passed=int(done * mean))
        result = {
            "name": name,
            "pass_at_1": round(mean, 4),
            "stderr": round(math.sqrt(mean * (1 - mean) / total), 4),
            "n": total,
            "greedy": round(min(1.0, mean + 0.03), 4),
        }
        self.families[name] = families
        self.evaluations[name] = result
        self.log("driver").emit("evaluation.finished", **result)

    def train_step(self, step: int) -> None:
        level = self.level(step)
        closed = zero = 0
        rewards: list[float] = []
        while closed < self.groups_per_step:
            outcome, got = self.run_group(level)
            closed, zero = closed + (outcome == "ready"), zero + (outcome == "zero_variance")
            rewards += got if outcome == "ready" else []
        self.now += 2.4
        self.records.record_step(step, make_version(1, step - 1), self.ready, {}, {})
        self.ready = []
        self.write_metrics(step, level, closed, zero, rewards)
        pause, version = self.rng.uniform(70, 160), make_version(1, step)
        self.pauses.append(pause)
        self.log("learner-0").emit("weights.published", version=version, step=step)
        self.log("engine-0").emit(
            "engine.loaded", engine="engine-0", version=version, pause_ms=round(pause, 1), load_ms=round(pause * 0.7, 1)
        )
        live = 14 + self.rng.randint(0, 2)
        self.log("worker-0").emit(
            "sandbox.counted", live=live, started=self.counts["acknowledged"], waiting=self.rng.randint(0, 3)
        )

    def level(self, step: int) -> float:
        return 0.18 + 0.62 / (1 + math.exp(-(step - self.steps * 0.42) / (self.steps * 0.13)))

    def run_group(self, level: float) -> tuple[str, list[float]]:
        group, self.group = self.group, self.group + 1
        family = self.rng.choice(FAMILIES)
        task = f"{family}-{group:04d}"
        scheduler, buffer = self.log("scheduler"), self.log("buffer")
        scheduler.emit("group.opened", group=group, task=task, size=GROUP_SIZE)
        skill = min(0.98, max(0.02, level + self.rng.uniform(-0.35, 0.35)))
        rewards = [
            1.0 if self.rng.random() < skill else self.rng.choice((0.0, 0.0, 0.25, 0.5)) for _ in range(GROUP_SIZE)
        ]
        for sample, reward in enumerate(rewards):
            self.episode(group, sample, task, family, reward)
        if self.rng.random() < 0.02:
            scheduler.emit(
                "episode.failed",
                trajectory=f"train-g{group:06d}-s00",
                reason="sandbox_lost",
                detail="container vanished; its request is issued again",
            )
        outcome = "zero_variance" if len(set(rewards)) == 1 else "ready"
        if outcome != "ready":
            self.dropped[outcome] = self.dropped.get(outcome, 0) + GROUP_SIZE
        if outcome == "ready":
            self.ready += [f"train-g{group:06d}-s{sample:02d}" for sample in range(GROUP_SIZE)]
        buffer.emit("group.closed", group=group, task=task, outcome=outcome, size=GROUP_SIZE, rewards=rewards)
        return outcome, rewards

    def episode(self, group: int, sample: int, task: str, family: str, reward: float, *, finish: bool = True) -> str:
        name = f"train-g{group:06d}-s{sample:02d}-a0"
        worker = f"worker-{sample % 2}"
        instruction = f"In /work/input.txt, add up the second column and write the sum to /work/answer.txt ({family})."
        log = self.log(worker)
        log.emit(
            "episode.started",
            trajectory=name,
            group=group,
            sample=sample,
            task=task,
            family=family,
            instruction=instruction,
            worker=worker,
        )
        turns, sampled = self.rng.randint(2, 6), 0
        begun = self.now
        with CastWriter.open(
            self.run_dir / "terminals" / f"{name}.cast", 100, 30, instruction, clock=self._now, now=self._now
        ) as cast:
            for turn in range(1, turns + 1):
                sampled += self.rng.randint(18, 60)
                self.now += self.rng.uniform(0.05, 0.2)
                command, output = self.rng.choice(_COMMANDS)
                log.emit(
                    "episode.turn",
                    trajectory=name,
                    turn=turn - 1,
                    sampled=sampled,
                    versions=[make_version(1, max(0, group // 5 - 1)), make_version(1, group // 5)],
                    ms=100.0,
                )
                log.emit("episode.tool", trajectory=name, tool="bash", command=command)
                cast.record_marker(turn_marker_label(turn - 1))
                cast.record_command(command)
                self.now += 0.08
                cast.record_output(output)
            if not finish:
                return name
            cast.record_note(f"{round(4 * reward)} of 4 hidden tests passed, reward {reward:g}")
        status = "completed" if reward else self.rng.choice(("turn_limit", "completed", "malformed_limit"))
        ms = {
            "acquire": 12.0,
            "generate": 900.0,
            "tool": 140.0,
            "grade": 220.0,
            "total": round(1000 * (self.now - begun), 1),
        }
        isolation = "toolchain" if group % 4 else "shared"
        if isolation == "shared" and reward == 1.0:
            log.emit("episode.suspicious", trajectory=name, why=["call 2 touched the tests' folder: ls /tests"])
        log.emit(
            "episode.finished",
            trajectory=name,
            status=status,
            isolation=isolation,
            reward=reward,
            sampled=sampled,
            turns=turns,
            ms=ms,
        )
        self.counts["acknowledged"] += 1
        row = {
            "trajectory": name,
            "group": group,
            "sample": sample,
            "outcome": "stored",
            "status": status,
            "reward": reward,
            "tokens": sampled * 4,
            "sampled": sampled,
        }
        self.log("buffer").emit("trajectory.stored", **row)
        self.export(group, sample, task, status, reward, turns)
        self.sampled_tokens += sampled
        return name

    def export(self, group: int, sample: int, task: str, status: str, reward: float, turns: int) -> None:
        """A trajectory of so many turns, each as long as its observation."""
        length = 16
        kinds = [TurnKind.PROMPT, *[TurnKind.MODEL, TurnKind.OBSERVATION] * turns]
        spans = [Turn(kind, length * n, length * (n + 1)) for n, kind in enumerate(kinds)]
        mask = np.repeat([kind is TurnKind.MODEL for kind in kinds], length).astype(np.uint8)
        versions = np.where(mask == 1, make_version(1, group // 5), -1).astype(np.int32)
        segment = Segment(
            np.arange(len(mask), dtype=np.int32), mask, -0.1 * mask.astype(np.float32), versions, tuple(spans)
        )
        passed = round(4 * reward)
        tests = tuple(TestResult(f"test_{number}", number < passed) for number in range(4))
        request = RolloutRequest(self.run_dir.name, GroupId(group), sample, GROUP_SIZE, task, sample)
        trajectory = Trajectory(request, EpisodeStatus(status), Reward(reward, {"tests": reward}), (segment,), tests)
        blob = codec.pack_trajectory(trajectory)
        self.exporter.export_trajectory(codec.inspect_blob(blob), blob)

    def write_metrics(self, step: int, level: float, groups: int, zero: int, rewards: list[float]) -> None:
        sampled = groups * GROUP_SIZE * 150
        masked = int(sampled * self.rng.uniform(0, 0.02)) if step > 3 else 0
        staleness_max = min(MAX_STALENESS, step - 1, 1 + int(self.rng.random() < 0.5))
        self.staleness_max = max(self.staleness_max, staleness_max)
        self.trained_tokens, self.masked_tokens = self.trained_tokens + sampled - masked, self.masked_tokens + masked
        stale = int(masked > 0 and self.rng.random() < 0.5)
        self.counts["trained"] += groups * GROUP_SIZE - stale
        if stale:
            self.dropped["all_stale"] = self.dropped.get("all_stale", 0) + stale
        staleness = self.histogram_of(sampled - masked, staleness_max)

        def wobble(size: float) -> float:
            return self.rng.uniform(-size, size)

        facts = StepFacts(
            step=step,
            rewards=rewards,
            passed=sum(reward >= 1.0 for reward in rewards),
            zero_variance_groups=zero,
            groups=groups,
            trained=groups * GROUP_SIZE - stale,
            dropped={"all_stale": stale} if stale else {},
            staleness_histogram=staleness,
            sampled_tokens=sampled,
            wait_s=0.4 + wobble(0.3),
            step_s=2.4 + wobble(0.4),
            pause_ms=110 + wobble(40),
        )
        learner = {
            "loss": -0.02 + wobble(0.01),
            "grad_norm": 0.8 + wobble(0.3),
            "entropy": 1.4 * math.exp(-step / 30) + wobble(0.03),
            "clip_high": 0.012 + wobble(0.006),
            "clip_low": 0.006 + wobble(0.004),
            "clip_dual": 0.0005,
            "kl_k1": 0.0004,
            "kl_k3": 0.0006 + wobble(0.0003),
            "staleness_mean": sum(steps * tokens for steps, tokens in enumerate(staleness)) / sum(staleness),
            "staleness_max": float(staleness_max),
            "masked_tokens": float(masked),
            "trained_tokens": float(sampled - masked),
            "sampled_tokens": float(sampled),
            "trained_share": (sampled - masked) / sampled,
        }
        self.log("learner-0").emit("learner.step", **self.metrics.append_step(facts, learner))

    def histogram_of(self, tokens: int, oldest: int) -> list[int]:
        """Put every token into one staleness bin."""
        staleness = [0] * oldest + [tokens]
        for steps in range(oldest):
            staleness[steps] = int(staleness[-1] * self.rng.uniform(0.3, 0.5))
            staleness[-1] -= staleness[steps]
        self.staleness = [a + b for a, b in zip_longest(self.staleness, staleness, fillvalue=0)]
        return staleness

    def finish(self, reason: str = "the last step was taken") -> dict[str, object]:
        self.phase("shutdown")
        self.log("driver").emit("run.finished", ok=True, reason=reason)
        summary: dict[str, object] = {
            "recipe": "demo",
            "finished": True,
            "ok": True,
            "steps": self.steps,
            "mode": "async",
            "negative_control": "none",
            "nodes": 2,
            "seed": self.seed,
            "seconds": round(self.now - self.start, 1),
            "evaluation": self._evaluation_summary(),
            "trajectories": {
                "finished": self.counts["acknowledged"],
                **self.counts,
                "dropped": self.dropped,
                "masked_tokens": self.masked_tokens,
                "infra_failures": 3,
            },
            "staleness": {"max": self.staleness_max, "mean": 0.62, "max_staleness": MAX_STALENESS},
            "clip": {"high_max": 0.018, "low_max": 0.01, "high_steps": self.steps, "low_steps": self.steps},
            "weights": {
                "versions": len(self.pauses),
                "loads": len(self.pauses),
                "pause_ms_p50": round(sorted(self.pauses)[len(self.pauses) // 2], 2),
                "pause_ms_max": round(max(self.pauses), 2),
            },
            "sandbox": {"started": self.counts["acknowledged"] + 3, "leaked": 0},
            "tokens_per_s": {"sampled": 1447.2, "trained": 1433.9},
        }
        (self.run_dir / "summary.json").write_text(json.dumps(summary, indent=2))
        return summary

    def _evaluation_summary(self) -> dict[str, object]:
        before, after = self.evaluations["before"], self.evaluations["after"]
        difference = after["pass_at_1"] - before["pass_at_1"]
        table = {
            family: {
                "held_out": family in HELD_OUT,
                "before": {**row, "stderr": 0.081},
                "after": {**self.families["after"][family], "stderr": 0.078},
                "difference": round(self.families["after"][family]["pass_at_1"] - row["pass_at_1"], 4),
                "difference_stderr": 0.092,
            }
            for family, row in self.families["before"].items()
        }
        return {
            "before": {key: before[key] for key in ("pass_at_1", "stderr", "n", "greedy")},
            "after": {key: after[key] for key in ("pass_at_1", "stderr", "n", "greedy")},
            "difference": round(difference, 4),
            "difference_stderr": 0.041,
            "ci95": [round(difference - 0.08, 4), round(difference + 0.08, 4)],
            "families": table,
        }

    def close(self) -> None:
        for log in self.logs.values():
            log.close()


def write_fake_run(run_dir: Path, *, steps: int = 24, seed: int = 0, finished: bool = True) -> FakeRun:
    """A run up to its last step; unfinished ones have six episodes running."""
    run = FakeRun(run_dir, steps=steps, seed=seed)
    try:
        run.begin()
        run.evaluate("before", 0.2)
        run.phase("training")
        for step in range(1, (steps if finished else max(2, steps * 2 // 3)) + 1):
            run.train_step(step)
        if finished:
            run.evaluate("after", 0.78)
            run.finish()
        else:
            run.log("scheduler").emit(
                "group.opened", group=run.group, task=f"sum_column-{run.group:04d}", size=GROUP_SIZE
            )
            for sample in range(6):
                run.episode(run.group, sample, f"sum_column-{run.group:04d}", "sum_column", 0, finish=False)
    finally:
        run.close()
    return run


def grow_live(run_dir: Path, seconds: float) -> None:
    """An unfinished run whose episodes go on in real time, for looking at."""
    run = FakeRun(run_dir, start=time.time() - 700)
    run.begin()
    run.evaluate("before", 0.2)
    run.phase("training")
    for step in range(1, 15):
        run.train_step(step)
    until = time.time() + seconds
    while time.time() < until:
        run.now = time.time()
        names, casts = [], []
        run.log("scheduler").emit("group.opened", group=run.group, task=f"sum_column-{run.group:04d}", size=GROUP_SIZE)
        for sample in range(8):
            run.now = time.time()
            names.append(run.episode(run.group, sample, f"sum_column-{run.group:04d}", "sum_column", 0, finish=False))
            path = run_dir / "terminals" / f"{names[-1]}.cast"
            casts.append(CastWriter.open(path, 100, 30, "Add up the second column"))
        for _ in range(5):
            for cast in casts:
                command, output = run.rng.choice(_COMMANDS)
                cast.prompt_command(command)
                time.sleep(0.25)
                cast.output(output)
        for cast, name in zip(casts, names, strict=True):
            run.now = time.time()
            cast.note("4 of 4 hidden tests passed, reward 1")
            cast.close()
            run.log("worker-0").emit(
                "episode.finished",
                trajectory=name,
                status="completed",
                reward=1.0,
                sampled=150,
                turns=5,
                ms={"total": 9000.0},
            )
        run.group += 1
    run.close()


if __name__ == "__main__":
    if "--live" in sys.argv:
        grow_live(Path(sys.argv[1]), 600)
    else:
        write_fake_run(Path(sys.argv[1]))
