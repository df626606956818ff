"""The folders that a run leaves: the trained model, and its adapters alone where they are asked for.

Each is written beside its place, what is in it is noted in the run's directory, and one rename puts it there.  So a run
that goes on knows a whole folder of its own, which stays; a torn one, which is written again; and anybody else's,
which is never touched.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations
from pathlib import Path

from pydantic import TypeAdapter
from safetensors import SafetensorError

from launch.actor_group.learner_group import LearnerGroup
from launch.sft.settings import SftSettings
from learner.rank import LearnerRank
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.files.digests import FileDigest, digest_files, find_damage
from protocol.files.filesystem import build_folder, replace_file
from protocol.weights import NO_VERSION, WeightVersion

NOTES_FILE = "exports.json"


class SftExport(StrEnum):
    """What a folder holds."""

    MODEL = "model"
    """All weights, as Hugging Face's folders have them; adapters are merged into them."""
    ADAPTERS = "adapters"
    """The adapters alone, as PEFT's folders have them."""


_OPTIONS = {SftExport.MODEL: "--output", SftExport.ADAPTERS: "--adapters"}
_WRITERS = {SftExport.MODEL: LearnerRank.publish, SftExport.ADAPTERS: LearnerRank.publish_adapter}


@dataclass(frozen=True, slots=True)
class _Note:
    """Of a folder that was written."""

    weights: str
    """:meth:`LearnerRank.weights_digest` of what it holds."""
    files: Mapping[str, FileDigest]

    def has(self, folder: Path) -> bool:
        """Whether all that is in ``folder`` was written by this run and is as it was.  Raises OSError."""
        names = _names(folder)
        there = {name: digest for name, digest in self.files.items() if name in names}
        return names == there.keys() and find_damage(folder, there) is None


_NOTES = TypeAdapter(dict[SftExport, _Note])


def check_exports(sft: SftSettings, run_dir: Path | None) -> None:
    """Raises UserError where a folder that is asked for could not appear.  ``run_dir``: that of a run that goes on."""
    places, notes = _export_folders(sft, run_dir), {} if run_dir is None else _notes(run_dir)
    for export, folder in places.items():
        with _explain_errors(folder, f"give another {_OPTIONS[export]}"):
            _check_free(export, folder, notes.get(export))
            _check_writable(folder)
    if any(one.is_relative_to(other) for one, other in permutations(places.values(), 2)):
        raise UserError(
            f"--output {places[SftExport.MODEL]} and --adapters {places[SftExport.ADAPTERS]} are in one another: "
            "give each a folder of its own"
        )


@dataclass(frozen=True, slots=True)
class SftExports:
    run_dir: Path
    folders: Mapping[SftExport, Path]
    resume_options: str
    """What ``python -m launch.sft`` needs to go on with the run."""

    @classmethod
    def from_config(cls, sft: SftSettings, run_dir: Path, resume_options: str) -> SftExports:
        return cls(run_dir, _export_folders(sft, run_dir), resume_options)

    async def write(self, learners: LearnerGroup, step: int, weights: str) -> None:
        """Put what is not there yet in its place.  ``weights``: their digest.  Raises UserError where it cannot be."""
        for export, folder in self.folders.items():
            advice = (
                "the trained weights are in the run's last checkpoint, and this writes them elsewhere: python -m "
                f"launch.sft {self.resume_options} {_OPTIONS[export]} FOLDER"
            )
            with _explain_errors(folder, advice):
                if await asyncio.to_thread(self._is_written, export, folder, weights):
                    continue
                with build_folder(folder) as partial:
                    await learners.call(_WRITERS[export], WeightVersion(0), step, NO_VERSION, str(partial))
                    await asyncio.to_thread(self._note, export, partial, weights)

    def summary(self) -> dict[str, JsonValue]:
        return {export.value: str(folder) for export, folder in self.folders.items()}

    def _is_written(self, export: SftExport, folder: Path, weights: str) -> bool:
        """Whether it is in its place already, from an earlier attempt.  If not, the place is free afterwards."""
        note = _notes(self.run_dir).get(export)
        _check_free(export, folder, note)
        if note is None or not folder.exists():
            return False
        if note.weights == weights and set(note.files) == _names(folder):
            return True
        shutil.rmtree(folder)
        return False

    def _note(self, export: SftExport, folder: Path, weights: str) -> None:
        note = _Note(weights, digest_files(folder, sorted(_names(folder))))
        notes = _NOTES.dump_json(_notes(self.run_dir) | {export: note}, indent=2)
        replace_file(self.run_dir / NOTES_FILE, notes)


def _export_folders(sft: SftSettings, run_dir: Path | None) -> dict[SftExport, Path]:
    """Where each folder is to appear, links resolved.  A new run's own directory is always free."""
    inside = None if run_dir is None else run_dir / SftExport.MODEL
    asked = {SftExport.MODEL: sft.output or inside, SftExport.ADAPTERS: sft.adapters}
    return {export: Path(os.path.realpath(folder)) for export, folder in asked.items() if folder is not None}


def _notes(run_dir: Path) -> dict[SftExport, _Note]:
    file = run_dir / NOTES_FILE
    return _NOTES.validate_json(file.read_bytes()) if file.exists() else {}


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _check_free(export: SftExport, folder: Path, note: _Note | None) -> None:
    """Nothing is in the place but what this run wrote.  Raises UserError or OSError."""
    if folder.exists() and (not folder.is_dir() or (_names(folder) and (note is None or not note.has(folder)))):
        whose = "" if note is None else ", and holds what this run did not write"
        raise UserError(
            f"{folder} exists{whose}, and nothing is overwritten: give another {_OPTIONS[export]}, or remove it"
        )
    if folder.is_mount():
        raise UserError(
            f"{folder} is a mount point, which no folder can become: give a folder in it, {_OPTIONS[export]} "
            f"{folder / export}"
        )


def _check_writable(folder: Path) -> None:
    """Raises OSError where nothing can be made beside it.  To try is the only way to know: permissions do not bind
    root, and some file systems take no folder at all."""
    there = next(path for path in folder.parents if path.exists())
    with tempfile.TemporaryDirectory(dir=there, prefix=f".{folder.name}."):
        pass


@contextmanager
def _explain_errors(folder: Path, advice: str) -> Generator[None]:
    """Raises UserError with ``advice`` for what the file system refuses."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"{folder} cannot be written ({why}): {advice}") from error
