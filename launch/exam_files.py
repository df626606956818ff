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

from actors.evaluation import Attempt
from launch.rundir import write_json
from protocol.filesystem import sync, whole_folder
from protocol.weights import Lineage, Version, WeightManifest

_EXAM, _WEIGHTS, _ATTEMPTS = "exam.json", "weights", "attempts.jsonl"
_LIST = TypeAdapter(list[Attempt])


@dataclass(frozen=True, slots=True)
class Examined:
    """One that has ended."""

    name: str
    step: int
    version: Version
    attempts: Sequence[Attempt]


def exam_name(step: int) -> str:
    """The evaluation of the weights of ``step``, in tickets and events."""
    return f"step-{step:06d}"


def attempts_file(run_dir: Path, version: Version) -> Path:
    """Of one that is under way."""
    return _folder(run_dir, version) / _ATTEMPTS


def keep_exam(run_dir: Path, manifest: WeightManifest) -> WeightManifest:
    """An evaluation of these weights is under way until :func:`end_exam` or :func:`forget_exam`; its own manifest of
    them.  Raises OSError, and nothing is left."""
    folder = _folder(run_dir, manifest.version)
    kept = replace(manifest, path=str(folder / _WEIGHTS))
    with whole_folder(folder) as partial:
        (partial / _WEIGHTS).mkdir()
        for file in Path(manifest.path).iterdir():
            _link(file, partial / _WEIGHTS / file.name)
        (partial / _EXAM).write_bytes(orjson.dumps(asdict(kept)))
        sync(partial / _EXAM)
    sync(folder.parent)
    return kept


def _link(file: Path, to: Path) -> None:
    try:
        os.link(file, to)
    except OSError:  # a file system without hard links
        shutil.copyfile(file, to)


def kept_exams(run_dir: Path) -> list[WeightManifest]:
    """Of those that were under way when the run was left; what a crash, or a disk, has left of others is removed."""
    parent, found = _parent(run_dir), list[WeightManifest]()
    ended = [path.with_suffix("") for path in parent.glob("v*.json")]
    for left in (*parent.glob(".v*"), *ended):
        shutil.rmtree(left, ignore_errors=True)
    for folder in (path for path in parent.glob("v*") if path.is_dir()):
        try:
            found.append(WeightManifest(**orjson.loads((folder / _EXAM).read_bytes())))
        except (OSError, ValueError, TypeError):
            shutil.rmtree(folder, ignore_errors=True)
    return sorted(found, key=lambda manifest: manifest.version)


def end_exam(run_dir: Path, manifest: WeightManifest, attempts: Sequence[Attempt]) -> Path:
    """It has come to this.  Raises OSError."""
    path = _result(run_dir, manifest.version)
    told = {"name": exam_name(manifest.step), "step": manifest.step, "version": manifest.version}
    write_json(path, {**told, "attempts": [asdict(attempt) for attempt in attempts]})
    forget_exam(run_dir, manifest.version)
    return path


def forget_exam(run_dir: Path, version: Version) -> None:
    """It is not gone on with."""
    shutil.rmtree(_folder(run_dir, version), ignore_errors=True)


def read_exams(run_dir: Path) -> Iterator[Examined]:
    """All that have ended, those of weights that were rolled back too, in the order of their versions.  One that cannot
    be read is none."""
    for version in sorted(int(path.stem[1:]) for path in _parent(run_dir).glob("v*.json")):
        try:
            value = orjson.loads(_result(run_dir, version).read_bytes())
            attempts = _LIST.validate_python(value["attempts"])
            yield Examined(value["name"], value["step"], Version(version), attempts)
        except (OSError, ValueError, TypeError, KeyError):
            continue


def exam_results(run_dir: Path) -> dict[str, Path]:
    """Name → file of those that have ended, the newest of each step, whether its weights stand or not."""
    return {exam.name: _result(run_dir, exam.version) for exam in read_exams(run_dir)}


def standing_exams(run_dir: Path, lineage: Lineage, version: Version) -> list[Examined]:
    """Those whose weights ``version`` comes from; the newest of each step."""
    line = set(lineage.line(version))
    by_step = {exam.step: exam for exam in read_exams(run_dir) if exam.version in line}
    return [by_step[step] for step in sorted(by_step)]


def _parent(run_dir: Path) -> Path:
    return run_dir / "evaluations"


def _result(run_dir: Path, version: int) -> Path:
    return _parent(run_dir) / f"v{version}.json"


def _folder(run_dir: Path, version: Version) -> Path:
    return _parent(run_dir) / f"v{version}"
