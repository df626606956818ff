"""Evaluations beside training in the run directory, by the version that they are of.

``evaluations/v<version>/`` while one is under way: ``exam.json`` (its weights' manifest), ``weights/`` (their files, as
hard links, so that nobody who forgets old versions takes them away) and ``attempts.jsonl``.  It appears whole.
``evaluations/v<version>.json`` when it has ended: every attempt, as those before and after training have them.  A
version is never used again, so neither is overwritten by weights that a resume made anew; which of them stand, the
lineage says.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from actors.scheduler.evaluation import EvaluationAttempt
from launch.run_records.run_directory import write_json
from protocol.files.filesystem import build_folder, fsync_path
from protocol.weights import Lineage, WeightManifest, WeightVersion

_MANIFEST_FILE, _WEIGHTS, _ATTEMPTS = "exam.json", "weights", "attempts.jsonl"
_LIST = TypeAdapter(list[EvaluationAttempt])


@dataclass(frozen=True, slots=True)
class OnlineEvaluationResult:
    """One that has ended."""

    name: str
    step: int
    version: WeightVersion
    attempts: Sequence[EvaluationAttempt]


def online_evaluation_name(step: int) -> str:
    """The evaluation of the weights of ``step``, in tickets and events."""
    return f"step-{step:06d}"


def attempts_file(run_dir: Path, version: WeightVersion) -> Path:
    """Of one that is under way."""
    return _pending_folder(run_dir, version) / _ATTEMPTS


def store_pending_evaluation(run_dir: Path, manifest: WeightManifest) -> WeightManifest:
    """An evaluation of these weights is under way until :func:`end_exam` or :func:`forget_exam`; its own manifest of
    them.  Raises OSError, and nothing is left."""
    folder = _pending_folder(run_dir, manifest.version)
    kept = replace(manifest, path=str(folder / _WEIGHTS))
    with build_folder(folder) as partial:
        (partial / _WEIGHTS).mkdir()
        for file in Path(manifest.path).iterdir():
            _link(file, partial / _WEIGHTS / file.name)
        (partial / _MANIFEST_FILE).write_bytes(orjson.dumps(asdict(kept)))
        fsync_path(partial / _MANIFEST_FILE)
    fsync_path(folder.parent)
    return kept


def _link(file: Path, to: Path) -> None:
    try:
        os.link(file, to)
    except OSError:  # a file system without hard links
        shutil.copyfile(file, to)


def load_pending_evaluations(run_dir: Path) -> list[WeightManifest]:
    """Of those that were under way when the run was left; what a crash, or a disk, has left of others is removed."""
    parent, found = _evaluations_folder(run_dir), list[WeightManifest]()
    ended = [path.with_suffix("") for path in parent.glob("v*.json")]
    for left in (*parent.glob(".v*"), *ended):
        shutil.rmtree(left, ignore_errors=True)
    for folder in (path for path in parent.glob("v*") if path.is_dir()):
        try:
            found.append(WeightManifest(**orjson.loads((folder / _MANIFEST_FILE).read_bytes())))
        except (OSError, ValueError, TypeError):
            shutil.rmtree(folder, ignore_errors=True)
    return sorted(found, key=lambda manifest: manifest.version)


def write_evaluation_result(run_dir: Path, manifest: WeightManifest, attempts: Sequence[EvaluationAttempt]) -> Path:
    """It has come to this.  Raises OSError."""
    path = _result_path(run_dir, manifest.version)
    told = {"name": online_evaluation_name(manifest.step), "step": manifest.step, "version": manifest.version}
    write_json(path, {**told, "attempts": [asdict(attempt) for attempt in attempts]})
    discard_pending_evaluation(run_dir, manifest.version)
    return path


def discard_pending_evaluation(run_dir: Path, version: WeightVersion) -> None:
    """It is not gone on with."""
    shutil.rmtree(_pending_folder(run_dir, version), ignore_errors=True)


def read_evaluation_results(run_dir: Path) -> Iterator[OnlineEvaluationResult]:
    """All that have ended, those of weights that were rolled back too, in the order of their versions.  One that cannot
    be read is none."""
    for version in sorted(int(path.stem[1:]) for path in _evaluations_folder(run_dir).glob("v*.json")):
        try:
            value = orjson.loads(_result_path(run_dir, version).read_bytes())
            attempts = _LIST.validate_python(value["attempts"])
            yield OnlineEvaluationResult(value["name"], value["step"], WeightVersion(version), attempts)
        except (OSError, ValueError, TypeError, KeyError):
            continue


def list_result_files(run_dir: Path) -> dict[str, Path]:
    """Name → file of those that have ended, the newest of each step, whether its weights stand or not."""
    return {exam.name: _result_path(run_dir, exam.version) for exam in read_evaluation_results(run_dir)}


def results_on_lineage(run_dir: Path, lineage: Lineage, version: WeightVersion) -> list[OnlineEvaluationResult]:
    """Those whose weights ``version`` comes from; the newest of each step."""
    line = set(lineage.walk_ancestors(version))
    by_step = {exam.step: exam for exam in read_evaluation_results(run_dir) if exam.version in line}
    return [by_step[step] for step in sorted(by_step)]


def _evaluations_folder(run_dir: Path) -> Path:
    return run_dir / "evaluations"


def _result_path(run_dir: Path, version: int) -> Path:
    return _evaluations_folder(run_dir) / f"v{version}.json"


def _pending_folder(run_dir: Path, version: WeightVersion) -> Path:
    return _evaluations_folder(run_dir) / f"v{version}"
