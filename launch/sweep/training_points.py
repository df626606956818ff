"""Points that are training runs: each is ``longshore cluster`` in a process and folder of its own.

A finished run is not repeated, and an interrupted one is resumed.  Runs that start from the same weights share the warm
start and the evaluation before training: the first makes both, and the others wait until it trains.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from launch.config import ConfigError, RunConfig, load_recipe
from launch.config.loader import Toml
from launch.evaluation.online.run_evaluations import BEFORE, read_run_evaluation
from launch.run_records.run_summary import read_run_summary
from launch.run_records.stored_config import flat_config, load_stored_config
from launch.sweep.axes import SweepPoint, format_assignments
from launch.sweep.definition import Sweep
from launch.sweep.sweep_points import SweepPoints
from launch.sweep.sweep_table import PointResult, PointState, ResultColumn
from learner.settings import LearnerSettings, TrainerSettings
from protocol.cli.output import error_console
from protocol.errors import UserError
from protocol.run_directory.layout import CONFIG_FILE, SUMMARY_FILE
from protocol.run_directory.run_tail import read_events

COLUMNS = (
    ResultColumn("before", "pass@1 before", ".3f"),
    ResultColumn("after", "after", ".3f"),
    ResultColumn("difference", "difference", "+.3f"),
    ResultColumn("difference_stderr", "stderr", ".3f"),
    ResultColumn("steps", "steps", ",.0f"),
    ResultColumn("trained", "episodes trained", ",.0f"),
    ResultColumn("staleness_mean", "staleness", ".2f"),
    ResultColumn("staleness_max", "max", ",.0f"),
    ResultColumn("versions", "versions", ",.0f"),
    ResultColumn("seconds", "seconds", ",.0f"),
)
PROGRAM = (sys.executable, "-m", "launch.cluster")
_MAY_DIFFER = ("run.dir", "evaluation.before_from", "monitor.")
"""Keys that may differ from those of an existing run; a final dot means the whole section."""
_LEARNING = (
    *(f"{table}." for table in ("stop", "proof", "checkpoint", "staleness", "correction", "kl", "shaping", "buffer")),
    *("run.name", "run.steps", "run.mode", "run.negative_control", "learner.lr", "learner.call_timeout_s"),
    *(f"learner.{key}" for key in LearnerSettings.model_fields.keys() - TrainerSettings.model_fields.keys()),
)
"""Prefixes of keys that the first weights, and their evaluation, do not depend on."""


def configure_runs(sweep: Sweep) -> dict[str, RunConfig]:
    """Return point's name → its run's configuration.  Raises ConfigError."""
    found: dict[str, RunConfig] = {}
    for point in sweep.points:
        try:
            found[point.name] = load_recipe(sweep.recipe, format_assignments(sweep.values(point)))
        except ConfigError as error:
            why = str(error).removeprefix(f"recipe {sweep.recipe}: ")
            raise ConfigError(f"point {point.name}: {why}") from error
    return found


class TrainingPoints(SweepPoints):
    columns = COLUMNS

    def __init__(
        self, sweep: Sweep, configs: Mapping[str, RunConfig], folder: Path, program: Sequence[str] = PROGRAM
    ) -> None:
        super().__init__(sweep, folder, program, error_console())
        self.configs = configs
        self._start_keys = {name: _start_key(config) for name, config in configs.items()}

    def check_existing(self) -> None:
        for point in self.sweep.points:
            run_dir = self.point_folder(point)
            if (run_dir / CONFIG_FILE).exists():
                _require_same(run_dir, load_stored_config(run_dir), self.configs[point.name])

    def preflight(self, points: Sequence[SweepPoint]) -> None:
        from launch.run.preflight import run_preflight_checks

        values = {"run.dir": str(self.point_folder(points[0]).parent)}
        for point in points:
            config = load_recipe(self.sweep.recipe, format_assignments({**self.sweep.values(point), **values}))
            run_preflight_checks(config)

    def read_result(self, point: SweepPoint) -> PointResult:
        run_dir, why = self.point_folder(point), self.failed.get(point.name, "")
        summary = read_run_summary(run_dir)
        if summary is None:
            started = (run_dir / CONFIG_FILE).exists()
            return PointResult(
                PointState.FAILED if why else PointState.INTERRUPTED if started else PointState.PLANNED, why
            )
        scores = summary.evaluation
        values = {
            "before": scores.before.pass_at_1 if scores.before else None,
            "after": scores.after.pass_at_1 if scores.after else None,
            "difference": scores.difference,
            "difference_stderr": scores.difference_stderr,
            "steps": summary.steps,
            "trained": summary.trajectories.trained,
            "staleness_mean": summary.staleness.mean,
            "staleness_max": summary.staleness.max,
            "versions": summary.weights.pushes,
            "seconds": summary.seconds,
        }
        known = {key: value for key, value in values.items() if value is not None}
        commit = str(orjson.loads((run_dir / CONFIG_FILE).read_bytes())["code"]["commit"])
        state = PointState.ENDED if summary.ok and not why else PointState.FAILED
        return PointResult(state, "; ".join(summary.failed_checks) or why, known, commit)

    def retry_advice(self, point: SweepPoint) -> str:
        run_dir = self.point_folder(point)
        if (run_dir / SUMMARY_FILE).exists():
            return f"it has ended: rm -r {shlex.quote(str(run_dir))}, then repeat the command to run it again"
        return "repeat the command to continue it"

    def is_ready(self, point: SweepPoint) -> bool:
        """Return whether no running point is about to make what ``point`` could share."""
        same = self.points_starting_alike(point)
        return all(each.name not in self.running or _has_begun_training(self.point_folder(each)) for each in same)

    def points_starting_alike(self, point: SweepPoint) -> list[SweepPoint]:
        """Return the other points that should start from the same weights as ``point``."""
        key = self._start_keys[point.name]
        return [each for each in self.sweep.points if each is not point and self._start_keys[each.name] == key]

    def command_line(self, point: SweepPoint) -> list[str]:
        run_dir = self.point_folder(point)
        values: dict[str, Toml] = {"run.dir": str(run_dir.parent)}
        if (run_dir / CONFIG_FILE).exists():
            return ["--resume", run_dir.name, *_sets(values)]
        if run_dir.exists():  # created, but never a run
            shutil.rmtree(run_dir)
        others = [self.point_folder(each) for each in self.points_starting_alike(point)]
        if evaluated := [each for each in others if read_run_evaluation(each, BEFORE, 0) is not None]:
            values["evaluation.before_from"] = str(evaluated[0])
        return [self.sweep.recipe, "--run-id", run_dir.name, *_sets({**self.sweep.values(point), **values})]


def _start_key(config: RunConfig) -> str:
    """Return a digest that is equal for configurations whose runs start from the same weights."""
    values = {key: value for key, value in _comparable_values(config).items() if not key.startswith(_LEARNING)}
    return hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _has_begun_training(run_dir: Path) -> bool:
    """Return whether a run's warm start and its evaluation before training are finished."""
    return any(event["kind"] == "run.phase" and event["phase"] == "training" for event in read_events(run_dir))


def _require_same(run_dir: Path, before: RunConfig, now: RunConfig) -> None:
    old, new = _comparable_values(before), _comparable_values(now)
    if other := [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]:
        key = other[0]
        raise UserError(
            f"{run_dir} was run with another {key} ({old.get(key)}, not {new.get(key)}): give what it had, --output "
            f"FOLDER to sweep elsewhere, or remove it (rm -r {shlex.quote(str(run_dir))}) to run the point again"
        )


def _comparable_values(config: RunConfig) -> dict[str, Toml]:
    """Return ``section.key`` → value, without the keys that may differ."""
    return {key: value for key, value in flat_config(config).items() if not key.startswith(_MAY_DIFFER)}


def _sets(values: Mapping[str, Toml]) -> list[str]:
    return [word for each in format_assignments(values) for word in ("--set", each)]
