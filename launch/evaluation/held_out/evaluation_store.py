"""The evaluations of a run, each in a folder below ``RUN/evaluations/``.

``before`` and ``after`` are those of the first and the last weights; ``v<version>`` are online evaluations, named by
the version that they evaluate.  A version is never used again, so none overwrites another; the lineage says which of
them are of weights that were rolled back.

All are evaluation folders (:mod:`launch.evaluation.results.evaluation_folder`) and appear whole.  One beside training
that is under way also has ``weights.json`` (the manifest of its weights) and ``weights/`` (hard links to their files,
which survive the removal of old versions); both are removed when it has finished.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import orjson

from launch.evaluation.results.evaluation_folder import (
    EVALUATIONS_FOLDER,
    EvaluationSpec,
    is_evaluation,
    read_spec,
    write_spec,
)
from protocol.errors import UserError
from protocol.evaluation import ATTEMPTS_FILE, AttemptRecord, read_attempts, write_attempts
from protocol.files.filesystem import build_folder, fsync_path
from protocol.weights import Lineage, WeightManifest, WeightVersion

BEFORE, AFTER = "before", "after"
"""Names of the evaluations of the weights that training starts with, and of its last."""
SOLVER = "run"
_WEIGHTS_FILE, _WEIGHTS = "weights.json", "weights"


def spec_of_weights(spec: EvaluationSpec, name: str, weights: WeightManifest) -> EvaluationSpec:
    """Return the specification of the evaluation ``name`` of these weights."""
    return replace(spec, name=name, step=weights.step, version=weights.version, weights_sha256=weights.sha256)


@dataclass(frozen=True, slots=True)
class OnlineEvaluationResult:
    """A finished online evaluation."""

    name: str
    step: int
    version: WeightVersion
    attempts: Sequence[AttemptRecord]


def online_evaluation_name(step: int) -> str:
    """Return the name of the evaluation of the weights of ``step``, in requests and events."""
    return f"step-{step:06d}"


def evaluations_folder(run_dir: Path) -> Path:
    return run_dir / EVALUATIONS_FOLDER


# -- before and after training ---------------------------------------------------------------------------------------


def write_run_evaluation(run_dir: Path, spec: EvaluationSpec, attempts: Iterable[AttemptRecord]) -> None:
    """Write a finished evaluation, replacing one of the same name.  Raises OSError."""
    folder = evaluations_folder(run_dir) / spec.name
    shutil.rmtree(folder, ignore_errors=True)
    with build_folder(folder) as partial:
        write_attempts(partial / ATTEMPTS_FILE, attempts)
        write_spec(partial, spec)
    fsync_path(folder.parent)


def read_run_evaluation(run_dir: Path, name: str, step: int) -> list[AttemptRecord] | None:
    """Return the attempts of the evaluation ``name`` of the weights of ``step``, or None if it has not finished."""
    folder = evaluations_folder(run_dir) / name
    if not is_evaluation(folder) or read_spec(folder).step != step:
        return None
    return [*read_attempts(folder / ATTEMPTS_FILE).values()]


def read_reusable_evaluation(run_dir: Path, weights_sha256: str) -> list[AttemptRecord] | None:
    """Return the evaluation before training of another run, or None unless it is of weights with this checksum."""
    folder = evaluations_folder(run_dir) / BEFORE
    if not is_evaluation(folder) or read_spec(folder).weights_sha256 != weights_sha256:
        return None
    return [*read_attempts(folder / ATTEMPTS_FILE).values()]


def list_run_evaluations(run_dir: Path) -> dict[str, Path]:
    """Return name → folder of the evaluations that have finished, sorted by name; the newest of each step."""
    found: dict[str, Path] = {}
    for folder in _finished_folders(run_dir):
        try:
            found[read_spec(folder).name] = folder
        except UserError:
            continue
    return dict(sorted(found.items()))


def _finished_folders(run_dir: Path) -> Iterator[Path]:
    """Yield the folders of finished evaluations, versions in their order."""
    folders = [path for path in evaluations_folder(run_dir).glob("[!.]*") if is_evaluation(path)]
    for folder in sorted(folders, key=lambda path: (_version_of(path) or -1, path.name)):
        if not (folder / _WEIGHTS_FILE).exists():
            yield folder


def _version_of(folder: Path) -> int | None:
    return int(folder.name[1:]) if folder.name[:1] == "v" and folder.name[1:].isdigit() else None


# -- online evaluations ----------------------------------------------------------------------------------------------


def attempts_file(run_dir: Path, version: WeightVersion) -> Path:
    """Return the attempts file of an online evaluation."""
    return _online_folder(run_dir, version) / ATTEMPTS_FILE


def store_pending_evaluation(run_dir: Path, spec: EvaluationSpec, manifest: WeightManifest) -> WeightManifest:
    """Begin an evaluation of these weights; return the manifest of its own copy of them.

    It is pending until :func:`finish_evaluation` or :func:`discard_pending_evaluation`.  Raises OSError and leaves
    nothing behind."""
    folder = _online_folder(run_dir, manifest.version)
    kept = replace(manifest, path=str(folder / _WEIGHTS))
    with build_folder(folder) as partial:
        (partial / _WEIGHTS).mkdir()
        for file in Path(manifest.path).iterdir():
            _link(file, partial / _WEIGHTS / file.name)
        name = online_evaluation_name(manifest.step)
        write_spec(partial, spec_of_weights(spec, name, manifest))
        (partial / _WEIGHTS_FILE).write_bytes(orjson.dumps(asdict(kept)))
        fsync_path(partial / _WEIGHTS_FILE)
    fsync_path(folder.parent)
    return kept


def _link(file: Path, to: Path) -> None:
    try:
        os.link(file, to)
    except OSError:  # a file system without hard links
        shutil.copyfile(file, to)


def load_pending_evaluations(run_dir: Path) -> list[WeightManifest]:
    """Return the weights of pending evaluations by version; remove what a crash or a damaged disk left of others."""
    parent, found = evaluations_folder(run_dir), list[WeightManifest]()
    for partial in parent.glob(".*.partial"):
        shutil.rmtree(partial, ignore_errors=True)
    for folder in (path for path in parent.glob("v*") if path.is_dir()):
        manifest = folder / _WEIGHTS_FILE
        if is_evaluation(folder) and not manifest.exists():
            shutil.rmtree(folder / _WEIGHTS, ignore_errors=True)
            continue
        try:
            found.append(WeightManifest(**orjson.loads(manifest.read_bytes())))
        except (OSError, ValueError, TypeError):
            shutil.rmtree(folder, ignore_errors=True)
    return sorted(found, key=lambda manifest: manifest.version)


def finish_evaluation(run_dir: Path, version: WeightVersion, attempts: Iterable[AttemptRecord]) -> None:
    """Mark a pending evaluation as finished with these attempts.  Raises OSError."""
    folder = _online_folder(run_dir, version)
    write_attempts(folder / ATTEMPTS_FILE, attempts)
    (folder / _WEIGHTS_FILE).unlink()
    fsync_path(folder)
    shutil.rmtree(folder / _WEIGHTS, ignore_errors=True)


def discard_pending_evaluation(run_dir: Path, version: WeightVersion) -> None:
    """Remove an evaluation that will not be continued."""
    shutil.rmtree(_online_folder(run_dir, version), ignore_errors=True)


def read_evaluation_results(run_dir: Path) -> Iterator[OnlineEvaluationResult]:
    """Yield the finished online evaluations in version order, including those of rolled-back weights.

    Unreadable ones are skipped."""
    for folder in _finished_folders(run_dir):
        if (version := _version_of(folder)) is None:
            continue
        try:
            spec, attempts = read_spec(folder), read_attempts(folder / ATTEMPTS_FILE)
        except (OSError, UserError):
            continue
        yield OnlineEvaluationResult(spec.name, spec.step, WeightVersion(version), [*attempts.values()])


def results_on_lineage(run_dir: Path, lineage: Lineage, version: WeightVersion) -> list[OnlineEvaluationResult]:
    """Return the results of ``version`` and its ancestors by step; the newest of each step."""
    line = set(lineage.walk_ancestors(version))
    by_step = {result.step: result for result in read_evaluation_results(run_dir) if result.version in line}
    return [by_step[step] for step in sorted(by_step)]


def _online_folder(run_dir: Path, version: WeightVersion) -> Path:
    return evaluations_folder(run_dir) / f"v{version}"
