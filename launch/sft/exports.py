"""Writes the folders that a run exports: the trained model, and optionally its adapters alone.

Each is written beside its final path, recorded in the run's directory, and renamed.  A resumed run thus recognises a
complete folder of its own, which it keeps; a torn one, which it writes again; and any other, which it never touches.
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
from launch.settings.sft import SftSettings
from learner.rank import LearnerRank
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.files.digests import FileDigest, digest_files, find_damage
from protocol.files.filesystem import build_folder, replace_file
from protocol.run_directory.layout import resume_command
from protocol.weights import NO_VERSION, WeightVersion

EXPORTS_FILE = "exports.json"


class SftExport(StrEnum):
    """Content of a folder."""

    MODEL = "model"
    """All weights in Hugging Face's format, with adapters merged."""
    ADAPTERS = "adapters"
    """The adapters alone in PEFT's format."""


_OPTIONS = {SftExport.MODEL: "--output", SftExport.ADAPTERS: "--adapters"}
_WRITERS = {SftExport.MODEL: LearnerRank.publish, SftExport.ADAPTERS: LearnerRank.publish_adapter}


@dataclass(frozen=True, slots=True)
class _ExportRecord:
    """Record of a folder that was written."""

    weights: str
    """:meth:`LearnerRank.weights_digest` of its weights."""
    files: Mapping[str, FileDigest]

    def matches(self, folder: Path) -> bool:
        """Return whether this run wrote everything in ``folder`` and nothing has changed.  Raises OSError."""
        names = _names(folder)
        existing = {name: digest for name, digest in self.files.items() if name in names}
        return names == existing.keys() and find_damage(folder, existing) is None


_RECORDS = TypeAdapter(dict[SftExport, _ExportRecord])


def check_exports(sft: SftSettings, run_dir: Path | None) -> None:
    """Raise UserError if a folder could not be written.  ``run_dir`` is that of a resumed run."""
    folders, records = _export_folders(sft, run_dir), {} if run_dir is None else _read_records(run_dir)
    for export, folder in folders.items():
        with _explain_errors(folder, f"choose another {_OPTIONS[export]}"):
            _check_free(export, folder, records.get(export))
            _check_writable(folder)
    if any(one.is_relative_to(other) for one, other in permutations(folders.values(), 2)):
        raise UserError(
            f"--output {folders[SftExport.MODEL]} and --adapters {folders[SftExport.ADAPTERS]} contain each other: "
            "choose separate folders"
        )


@dataclass(frozen=True, slots=True)
class SftExports:
    run_dir: Path
    folders: Mapping[SftExport, Path]

    @classmethod
    def from_config(cls, sft: SftSettings, run_dir: Path) -> SftExports:
        return cls(run_dir, _export_folders(sft, run_dir))

    async def write(self, learners: LearnerGroup, step: int, weights: str) -> None:
        """Write the folders that do not exist yet.  ``weights`` is the digest of the weights.  Raises UserError."""
        for export, folder in self.folders.items():
            advice = (
                "the trained weights are in the run's last checkpoint; to write them elsewhere: "
                f"{resume_command(self.run_dir, supervised=True)} {_OPTIONS[export]} FOLDER"
            )
            with _explain_errors(folder, advice):
                if await asyncio.to_thread(self._is_written, export, folder, weights):
                    continue
                with build_folder(folder) as partial:
                    await learners.call(_WRITERS[export], WeightVersion(0), step, NO_VERSION, str(partial))
                    await asyncio.to_thread(self._record, export, partial, weights)

    def summary(self) -> dict[str, JsonValue]:
        return {export.value: str(folder) for export, folder in self.folders.items()}

    def _is_written(self, export: SftExport, folder: Path, weights: str) -> bool:
        """Return whether an earlier start of the run wrote the folder; otherwise remove what it left."""
        record = _read_records(self.run_dir).get(export)
        _check_free(export, folder, record)
        if record is None or not folder.exists():
            return False
        if record.weights == weights and set(record.files) == _names(folder):
            return True
        shutil.rmtree(folder)
        return False

    def _record(self, export: SftExport, folder: Path, weights: str) -> None:
        record = _ExportRecord(weights, digest_files(folder, sorted(_names(folder))))
        records = _RECORDS.dump_json(_read_records(self.run_dir) | {export: record}, indent=2)
        replace_file(self.run_dir / EXPORTS_FILE, records)


def _export_folders(sft: SftSettings, run_dir: Path | None) -> dict[SftExport, Path]:
    """Return the final path of each folder with links resolved; without ``run_dir`` only those outside of it."""
    inside = None if run_dir is None else run_dir / SftExport.MODEL
    wanted = {SftExport.MODEL: sft.output or inside, SftExport.ADAPTERS: sft.adapters}
    return {export: Path(os.path.realpath(folder)) for export, folder in wanted.items() if folder is not None}


def _read_records(run_dir: Path) -> dict[SftExport, _ExportRecord]:
    file = run_dir / EXPORTS_FILE
    return _RECORDS.validate_json(file.read_bytes()) if file.exists() else {}


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _check_free(export: SftExport, folder: Path, record: _ExportRecord | None) -> None:
    """Raise UserError if the path has anything that this run did not write.  Also raises OSError."""
    if folder.exists() and (not folder.is_dir() or (_names(folder) and (record is None or not record.matches(folder)))):
        owner = "" if record is None else " and has files that this run did not write"
        raise UserError(
            f"{folder} exists{owner}, and nothing is overwritten: choose another {_OPTIONS[export]}, or remove it"
        )
    if folder.is_mount():
        raise UserError(
            f"{folder} is a mount point, which cannot be replaced: choose a folder in it, {_OPTIONS[export]} "
            f"{folder / export}"
        )


def _check_writable(folder: Path) -> None:
    """Raise OSError if nothing can be created beside ``folder``.

    Only trying tells: permissions do not bind root, and some file systems take no folders."""
    existing = next(path for path in folder.parents if path.exists())
    with tempfile.TemporaryDirectory(dir=existing, prefix=f".{folder.name}."):
        pass


@contextmanager
def _explain_errors(folder: Path, advice: str) -> Generator[None]:
    """Turn errors of the file system into UserError with ``advice``."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"{folder} cannot be written ({why}): {advice}") from error
