"""A fake of ``longshore cluster``: takes its options and leaves the files of a run, without running anything.

``<run.dir>/behaviour.json`` says for a run what each of its starts does: ``end`` (the default), ``miss`` (end with a
check that failed), ``break`` (die once it has begun to train), ``refuse`` (leave nothing), ``half`` (die before it is a
run), or ``hold`` (begin, and wait for the file ``<run.dir>/go`` before it trains).  What it was told is a line of
``<run.dir>/calls.jsonl``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import orjson

from launch.config import load_recipe
from launch.evaluation.held_out.evaluation_store import AFTER, BEFORE
from launch.run.arguments import parse_cluster_arguments
from launch.run_records.run_directory import RunDirectory
from launch.run_records.stored_config import config_tables, load_stored_config
from protocol.evaluation import AttemptRecord
from protocol.events import EventLog
from tests.support.runs.attempts import make_attempt
from tests.support.runs.evaluations import write_run_attempts

COMMIT = "c0ffee"
TASKS = 4


def main() -> int:
    arguments = parse_cluster_arguments(sys.argv[1:])
    config = load_recipe(arguments.recipe, arguments.config_overrides()) if arguments.recipe else None
    sets = dict(each.partition("=")[::2] for each in arguments.config_overrides())
    runs = Path(orjson.loads(sets["run.dir"]))
    runs.mkdir(parents=True, exist_ok=True)
    name = arguments.resume or arguments.run_id or ""
    does = _behaviour(runs, name)
    with (runs / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps({"run": name, "resumed": arguments.resume is not None, "sets": sets}) + "\n")
    if does == "refuse":
        return _die("the disk is full", 2)
    directory = RunDirectory.open(runs / name) if arguments.resume else RunDirectory.create(runs, "", name)
    if does == "half":
        return _die("killed", 1)
    if config is None:
        config = load_stored_config(directory.path)
    directory.write_json("config.json", {"config": config_tables(config), "code": {"commit": COMMIT}})
    events = EventLog(directory.path, f"driver-{directory.start_number}", "node-0")
    if does == "hold":
        while not (runs / "go").exists():
            time.sleep(0.01)
    events.emit("weights.published", version=1, step=0, sha256=f"weights of seed {config.run.seed}")
    write_run_attempts(directory.path, BEFORE, _attempts(1))
    events.emit("run.phase", phase="training", detail="")
    if does == "break":
        return _die("the engine is gone", 1)
    write_run_attempts(directory.path, AFTER, _attempts(3), config.run.steps)
    directory.write_json("summary.json", _summary(config.run.steps, does == "miss"))
    return 1 if does == "miss" else 0


def _behaviour(runs: Path, name: str) -> str:
    """The next of what is asked."""
    file = runs / "behaviour.json"
    behaviours = json.loads(file.read_text()) if file.exists() else {}
    done = sum(json.loads(line)["run"] == name for line in _lines(runs / "calls.jsonl"))
    return [*behaviours.get(name, []), *["end"] * (done + 1)][done]


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _attempts(passed: int) -> list[AttemptRecord]:
    """One at each of a few tasks, of which the first ``passed`` passed."""
    return [make_attempt(f"t-{n}", passed=n < passed, family="copy") for n in range(TASKS)]


def _summary(steps: int, missed: bool) -> dict[str, object]:
    return {
        "ok": not missed,
        "failed_checks": ["2 containers were left behind"] if missed else [],
        "steps": steps,
        "seconds": 12.5,
        "trajectories": {"trained": 64},
        "staleness": {"max": 3.0, "mean": 1.25},
        "weights": {"versions": 5},
        "evaluation": {"before": {"pass_at_1": 0.25}, "after": {"pass_at_1": 0.75}, "difference": 0.5},
    }


def _die(why: str, code: int) -> int:
    sys.stderr.write(f"error: {why}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
