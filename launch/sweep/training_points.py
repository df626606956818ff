"""Points that are training runs: each is ``longshore cluster``.

A finished run is not repeated, and an interrupted one is resumed.  Runs that start from the same weights share the warm
start and the evaluation before training: the first makes both, and the others wait until it trains.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import orjson

from launch.config import RunConfig, load_recipe
from launch.config.command_line import format_overrides
from launch.config.loader import Toml
from launch.evaluation.held_out.evaluation_store import BEFORE, read_run_evaluation
from launch.processes.background_tasks import background_services
from launch.run_records.run_summary import StoredRunSummary, read_run_summary
from launch.run_records.stored_config import flat_config, load_stored_config
from launch.sweep.definition import Sweep, SweepPoint
from launch.sweep.sweep_table import PointResult, PointState, ResultColumn, measure
from learner.settings import LearnerSettings, TrainerSettings
from protocol.errors import UserError
from protocol.run_directory.layout import CONFIG_FILE
from protocol.run_directory.run_tail import RunTail

METRICS: dict[ResultColumn, Callable[[StoredRunSummary], float | None]] = {
    ResultColumn("before", "pass@1 before", ".3f"): lambda run: (
        run.evaluation.before and run.evaluation.before.pass_at_1
    ),
    ResultColumn("after", "after", ".3f"): lambda run: run.evaluation.after and run.evaluation.after.pass_at_1,
    ResultColumn("difference", "difference", "+.3f"): lambda run: run.evaluation.difference,
    ResultColumn("difference_stderr", "stderr", ".3f"): lambda run: run.evaluation.difference_stderr,
    ResultColumn("steps", "steps", ",.0f"): lambda run: run.steps,
    ResultColumn("trained", "episodes trained", ",.0f"): lambda run: run.trajectories.trained,
    ResultColumn("staleness_mean", "staleness", ".2f"): lambda run: run.staleness.mean,
    ResultColumn("staleness_max", "max", ",.0f"): lambda run: run.staleness.max,
    ResultColumn("versions", "versions", ",.0f"): lambda run: run.weights.versions,
    ResultColumn("seconds", "seconds", ",.0f"): lambda run: run.seconds,
}
PROGRAM = (sys.executable, "-m", "launch.cluster")
_POLL_S = 1.0
_MAY_DIFFER = ("run.dir", "evaluation.before_from", "monitor.")
"""Keys that may differ from those of an existing run; a final dot means the whole section."""
_LEARNING = (
    *(
        f"{table}."
        for table in ("stop", "parity", "proof", "checkpoint", "staleness", "correction", "kl", "shaping", "buffer")
    ),
    *("run.name", "run.steps", "run.mode", "run.negative_control", "learner.lr", "learner.call_timeout_s"),
    *(f"learner.{key}" for key in LearnerSettings.model_fields.keys() - TrainerSettings.model_fields.keys()),
)
"""Prefixes of keys that the first weights, and their evaluation, do not depend on."""


class TrainingPoints:
    columns = tuple(METRICS)

    def __init__(self, sweep: Sweep, program: Sequence[str] = PROGRAM) -> None:
        """Configure all points.  Raises UserError for one that cannot run, or that was run with other keys."""
        self.sweep, self.program = sweep, program
        self.configs = sweep.configure_points(self._load_config)
        self._start_keys = {name: _start_key(config) for name, config in self.configs.items()}
        self._turns = defaultdict[bytes, asyncio.Lock](asyncio.Lock)

    def preflight(self, points: Sequence[SweepPoint]) -> None:
        from launch.run.preflight import run_preflight_checks

        for point in points:
            run_preflight_checks(self.configs[point.name])

    def read_result(self, point: SweepPoint) -> PointResult:
        summary, config = read_run_summary(point.folder), point.folder / CONFIG_FILE
        if summary is None:
            return PointResult(PointState.INTERRUPTED if config.exists() else PointState.PLANNED)
        return PointResult(
            PointState.ENDED if summary.ok else PointState.FAILED,
            "; ".join(summary.failed_checks),
            f"it has ended: rm -r {shlex.quote(str(point.folder))}, then repeat the command to run it again",
            measure(METRICS, summary),
            str(orjson.loads(config.read_bytes())["code"]["commit"]),
        )

    def command_line(self, point: SweepPoint) -> list[str]:
        """Return the command that resumes a run, or starts it: then what is left of one that never was is removed."""
        if (point.folder / CONFIG_FILE).exists():
            return [*self.program, "--resume", point.folder.name, *_sets(_run_dir(point))]
        shutil.rmtree(point.folder, ignore_errors=True)
        values = self.sweep.settings(point) | _run_dir(point)
        same = (each.folder for each in self.points_starting_alike(point))
        if evaluated := next((each for each in same if read_run_evaluation(each, BEFORE, 0) is not None), None):
            values["evaluation.before_from"] = str(evaluated)
        return [*self.program, self.sweep.recipe, "--run-id", point.folder.name, *_sets(values)]

    @asynccontextmanager
    async def wait_for_turn(self, point: SweepPoint) -> AsyncGenerator[None]:
        """Keep the points that start from the same weights waiting until this one trains or has ended."""
        async with AsyncExitStack() as turn:
            await turn.enter_async_context(self._turns[self._start_keys[point.name]])
            async with background_services(_end_turn(point.folder, turn)):
                yield

    def _load_config(self, point: SweepPoint) -> RunConfig:
        config = load_recipe(self.sweep.recipe, format_overrides(self.sweep.settings(point) | _run_dir(point)))
        if (point.folder / CONFIG_FILE).exists():
            _require_same(point.folder, load_stored_config(point.folder), config)
        return config

    def points_starting_alike(self, point: SweepPoint) -> list[SweepPoint]:
        """Return the other points that should start from the same weights as ``point``."""
        key = self._start_keys[point.name]
        return [each for each in self.sweep.points if each is not point and self._start_keys[each.name] == key]


def _run_dir(point: SweepPoint) -> dict[str, Toml]:
    return {"run.dir": str(point.folder.parent)}


def _sets(values: Mapping[str, Toml]) -> list[str]:
    return [f"--set={each}" for each in format_overrides(values)]


async def _end_turn(run_dir: Path, turn: AsyncExitStack) -> None:
    """Close ``turn`` once a run's warm start and its evaluation before training are finished."""
    tail = RunTail(run_dir)
    while True:
        if any(event["kind"] == "run.phase" and event["phase"] == "training" for event in tail.iter_events()):
            return await turn.aclose()
        await asyncio.sleep(_POLL_S)


def _start_key(config: RunConfig) -> bytes:
    """Return what is equal for configurations whose runs start from the same weights."""
    values = {key: value for key, value in _comparable_values(config).items() if not key.startswith(_LEARNING)}
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS)


def _require_same(run_dir: Path, before: RunConfig, now: RunConfig) -> None:
    old, new = _comparable_values(before), _comparable_values(now)
    if key := next((key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)), None):
        raise UserError(
            f"{run_dir} was run with another {key} ({old.get(key)}, not {new.get(key)}): give what it had, --output "
            f"FOLDER to sweep elsewhere, or remove it (rm -r {shlex.quote(str(run_dir))}) to run the point again"
        )


def _comparable_values(config: RunConfig) -> dict[str, Toml]:
    """Return ``section.key`` → value, without the keys that may differ."""
    return {key: value for key, value in flat_config(config).items() if not key.startswith(_MAY_DIFFER)}
