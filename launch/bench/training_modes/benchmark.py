"""``longshore bench training-modes``: measure how much faster a run is if rollout never waits for the learner.

Whole runs of a recipe start from one warm start, each as a separate process of the run's own command, in modes that
take turns.  The first command of each training episode is delayed once (:mod:`.tool_delays`,
:mod:`.delayed_episodes`).  Results are read from the run directories (:mod:`.run_measurement`).  A pilot chooses the
start concurrency for ``sync``; the other arms use the recipe's.
"""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, TypeAlias

from launch.bench.kept_runs import OutputFolder, make_output_folder, require_empty_folder
from launch.bench.training_modes.mode_runs import BATCH, MODES, ModeBenchmarkSetup, ModeRun, max_in_flight
from launch.bench.training_modes.run_measurement import RunMeasurement, measure_run
from launch.bench.training_modes.tool_delays import ToolDelays
from launch.config.command_line import DEFAULT_RECIPE, RecipeName
from launch.evaluation.scores import ScoreDifference, compare_attempts, round_score, score_attempts
from launch.processes.child_process import run_command
from launch.processes.process_reaper import ProcessReaper
from launch.run.preflight import run_preflight_checks
from protocol.cli.arguments import AtLeastOne, CommandArguments, Count, JsonFlag, Overrides, option
from protocol.cli.output import error_console
from protocol.errors import InfraError, UserError
from protocol.evaluation import AttemptRecord
from protocol.events import JsonValue
from protocol.run_directory.layout import SUMMARY_FILE
from protocol.staleness import AdmissionMode

_WARM_UP = 1
_PILOT_STEPS = 2
_WORSE = -0.05
"""Margin by which async's pass@1 must not be below that of sync."""

Rounds: TypeAlias = Mapping[AdmissionMode, Sequence[RunMeasurement]]
"""Mode → its repetitions."""


@dataclass(frozen=True, slots=True)
class ModeBenchmarkOptions:
    recipe: str
    overrides: tuple[str, ...]
    steps: int
    repetitions: int
    attempts: int
    starts: tuple[int, ...]
    seed: int
    median_s: float
    p95_s: float
    folder: Path | None
    """Folder that keeps the runs; None deletes them."""


@dataclass(frozen=True, slots=True)
class ModeBenchmarkReport:
    steps: int
    starts: int
    """Start concurrency under sync."""
    pilot: Mapping[int, float]
    """Start concurrency → episodes per second, as far as it was tried."""
    rounds: Rounds

    @property
    def difference(self) -> ScoreDifference | None:
        """Difference async − sync over all repetitions; None without evaluations."""
        sync, other = (self._pooled(mode) for mode in (AdmissionMode.SYNC, AdmissionMode.ASYNC))
        return compare_attempts(sync, other) if sync and other else None

    @property
    def failures(self) -> Sequence[str]:
        """The promises that do not hold, one line each.  Speed is no promise, as it depends on the machine."""
        found = [
            f"{mode.value}, repetition {number}: {line}"
            for mode, measured in self.rounds.items()
            for number, each in enumerate(measured, 1)
            for line in each.failed
        ]
        change = self.difference
        if change is not None and change.ci95 is not None and change.ci95[0] <= _WORSE:
            low, high = change.ci95
            found.append(
                f"async's pass@1 may be worse than sync's by more than {-_WORSE:g}: the difference is between "
                f"{low:+.3f} and {high:+.3f} (more --attempts or --repetitions narrow that)"
            )
        return found

    @property
    def passed(self) -> bool:
        return not self.failures

    def as_json(self) -> dict[str, JsonValue]:
        speed = {mode: [each.episodes_per_s for each in measured] for mode, measured in self.rounds.items()}
        of_sync = _ratios(speed[AdmissionMode.ASYNC], speed[AdmissionMode.SYNC])
        of_one = _ratios(speed[AdmissionMode.ASYNC], speed[AdmissionMode.ONE_STEP_OFF])
        sleep = [each.sleep_share for each in self.rounds[AdmissionMode.SYNC]]
        change = self.difference
        return {
            "episodes_per_s": {mode.value: round(median(each), 4) for mode, each in speed.items()},
            "async_vs_sync": round(median(of_sync), 3),
            "async_vs_one_step_off": round(median(of_one), 3),
            "sleep_share": round(median(sleep), 4),
            "eval_after": {mode.value: self._evaluation(mode) for mode in self.rounds},
            "eval_difference": None
            if change is None
            else {
                "mean": round(change.difference, 4) + 0.0,  # no minus before a zero
                "ci95": None if change.ci95 is None else [round(end, 4) for end in change.ci95],
            },
            "idle": {
                mode.value: {
                    "engine": round(median(each.idle.engine for each in measured), 4),
                    "learner": round(median(each.idle.learner for each in measured), 4),
                }
                for mode, measured in self.rounds.items()
            },
            "after_warm_up_per_s": {
                mode.value: round(median(each.after_warm_up_per_s for each in measured), 4)
                for mode, measured in self.rounds.items()
            },
            "finished_per_s": {
                mode.value: round(median(each.finished_per_s for each in measured), 4)
                for mode, measured in self.rounds.items()
            },
            "spread": {
                "episodes_per_s": {mode.value: [round(value, 4) for value in each] for mode, each in speed.items()},
                "async_vs_sync": [round(value, 3) for value in of_sync],
                "async_vs_one_step_off": [round(value, 3) for value in of_one],
                "sleep_share": [round(value, 4) for value in sleep],
            },
            "steps": self.steps,
            "batch": BATCH,
            "in_flight": {mode.value: max_in_flight(mode) for mode in self.rounds},
            "start_concurrency": {
                "sync": self.starts,
                "pilot_episodes_per_s": {str(starts): round(speed, 4) for starts, speed in self.pilot.items()},
            },
            "failed": [*self.failures],
        }

    def _pooled(self, mode: AdmissionMode) -> list[AttemptRecord]:
        return [attempt for each in self.rounds[mode] for attempt in each.attempts]

    def _evaluation(self, mode: AdmissionMode) -> JsonValue:
        pooled = self._pooled(mode)
        if not pooled:
            return None
        sampled = score_attempts(pooled)
        return {"pass_at_1": round(sampled.pass_at_1, 4), "stderr": round_score(sampled.stderr), "n": sampled.n}


class ModesArguments(CommandArguments):
    """Measure episodes per second of whole runs that wait for the learner, and of runs that do not."""

    recipe: RecipeName = DEFAULT_RECIPE
    overrides: Overrides = ()
    steps: AtLeastOne = 8
    """Measured optimizer steps, after one warm-up step."""
    repetitions: AtLeastOne = 3
    """Runs of each mode."""
    attempts: Count = 4
    """Evaluation attempts per held-out task and run; 4 are 432 in all for the demo; 0: none."""
    starts: Annotated[str, option("N,…")] = "2,4,8"
    """Concurrent container starts to try with sync."""
    seed: Count = 0
    """Seed of model, tasks and delays."""
    median_s: Annotated[float, option("S")] = 3.0
    """Median of the delays, in seconds."""
    p95_s: Annotated[float, option("S")] = 12.0
    """95th percentile of the delays, in seconds."""
    output: OutputFolder = None
    as_json: JsonFlag = False


def parse_options(given: ModesArguments) -> ModeBenchmarkOptions:
    """Check the arguments.  Raises UserError."""
    if not 0 < given.median_s < given.p95_s:
        raise UserError(f"--median-s {given.median_s:g} and --p95-s {given.p95_s:g}: write 0 < median-s < p95-s")
    return ModeBenchmarkOptions(
        recipe=given.recipe,
        overrides=given.overrides,
        steps=given.steps,
        repetitions=given.repetitions,
        attempts=given.attempts,
        starts=_starts(given.starts),
        seed=given.seed,
        median_s=given.median_s,
        p95_s=given.p95_s,
        folder=require_empty_folder(given.output),
    )


async def measure_modes(options: ModeBenchmarkOptions) -> ModeBenchmarkReport:
    """Run the benchmark.  Raises UserError if the machine cannot run it, InfraError if a run does not finish."""
    say = error_console().print
    made = options.folder is None or not options.folder.exists()
    output = make_output_folder(options.folder)
    bench = _Bench(ModeBenchmarkSetup(options.recipe, output, options.seed, options.overrides), options, say)
    try:
        bench.check()
    except UserError:
        if made:
            output.rmdir()
        raise
    with ProcessReaper(secrets.token_hex(16), Path(tempfile.mkdtemp(prefix="ls-"))):
        report = await bench.run()
    for line in report.failures:
        say(f"failed: {line}")
    if report.passed and options.folder is None:
        shutil.rmtree(output)
    return report


@dataclass(frozen=True, slots=True)
class _Bench:
    setup: ModeBenchmarkSetup
    options: ModeBenchmarkOptions
    say: Callable[[str], None]

    def check(self) -> None:
        """Check the arguments.  Raises UserError."""
        for mode in MODES:
            run_preflight_checks(self.setup.config(self._mode_run(mode, 1, None)))

    async def run(self) -> ModeBenchmarkReport:
        self.say(f"runs: {self.setup.runs_folder}")
        pilot = await self._pilot()
        starts = max(pilot, key=lambda each: pilot[each]) if pilot else self.options.starts[0]
        rounds: dict[AdmissionMode, list[RunMeasurement]] = {mode: [] for mode in MODES}
        for number in range(1, self.options.repetitions + 1):
            for mode in _rotated_modes(number):
                arm = self._mode_run(mode, number, starts if mode is AdmissionMode.SYNC else None)
                rounds[mode].append(await self._run_and_measure(arm, _WARM_UP))
        return ModeBenchmarkReport(self.options.steps, starts, pilot, rounds)

    async def _pilot(self) -> dict[int, float]:
        """Return start concurrency → episodes per second; nothing if there is no choice."""
        options, found = self.options, dict[int, float]()
        for starts in options.starts if len(options.starts) > 1 else ():
            arm = ModeRun(f"pilot-{starts}", AdmissionMode.SYNC, _PILOT_STEPS, 0, self._delays(0), starts)
            found[starts] = (await self._run_and_measure(arm, 0)).episodes_per_s
        return found

    def _mode_run(self, mode: AdmissionMode, number: int, starts: int | None) -> ModeRun:
        steps = _WARM_UP + self.options.steps
        return ModeRun(f"{number}-{mode.value}", mode, steps, self.options.attempts, self._delays(number), starts)

    def _delays(self, number: int) -> ToolDelays:
        """Return the delays of a repetition."""
        return ToolDelays(f"{self.options.seed}/{number}", self.options.median_s, self.options.p95_s)

    async def _run_and_measure(self, arm: ModeRun, warm_up: int) -> RunMeasurement:
        self.say(f"{arm.name}: {arm.steps} steps")
        program = (sys.executable, "-m", "launch.bench.training_modes.driver", arm.delays.to_json())
        _, code = await run_command(*program, *self.setup.command_line(arm))
        run_dir = self.setup.runs_folder / arm.name
        if not (run_dir / SUMMARY_FILE).exists():
            raise InfraError(f"the run {run_dir} ended before its time (exit code {code}): its last output is above")
        measured = measure_run(run_dir, warm_up, arm.delays)
        self.say(f"{arm.name}: {measured.episodes_per_s:.3f} episodes a second over {measured.seconds:.0f} s")
        return measured


def _rotated_modes(number: int) -> Sequence[AdmissionMode]:
    """Yield the modes of each repetition; each mode comes first in turn."""
    first = (number - 1) % len(MODES)
    return (*MODES[first:], *MODES[:first])


def _ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return the ratio of each repetition."""
    return [our / their for our, their in zip(ours, theirs, strict=True)]


def _starts(text: str) -> tuple[int, ...]:
    try:
        starts = tuple(dict.fromkeys(int(each) for each in text.split(",")))
    except ValueError:
        starts = ()
    if not starts or min(starts) < 1:
        raise UserError(f"--starts {text}: write numbers of containers, 2,4,8 for example, or one to try no other")
    return starts
