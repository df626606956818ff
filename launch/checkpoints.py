"""Checkpoints: a folder is one only once its manifest stands in it.

``checkpoints/step-000004/{learner/, ledger.jsonl, manifest.json}``.  The learner's shards come first and are fsynced,
then the ledger and the manifest, then one rename makes them a checkpoint: a crash at any point leaves the older
checkpoints or this one too, never half of it.  The manifest is the only truth about what is consumed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import orjson

from protocol.errors import UserError
from protocol.filesystem import append_whole, sync
from protocol.journal import Accounting
from protocol.weights import Lineage, LineageEntry, Version

_MANIFEST = "manifest.json"
_LEDGER = "ledger.jsonl"
_UNFINISHED = ".unfinished"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One optimizer step: which trajectories it trained, in the order in which they were given."""

    step: int
    version: int
    """The version that the step started from."""
    trained: tuple[str, ...]
    dropped: dict[str, str]
    """Trajectory → reason, of the same batch."""


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    step: int
    version: int
    """The version published with these weights."""
    attempt: int
    cursor: str
    """State of the task cursor."""
    accounting: dict[str, object]
    """What the journal held when this was written; consumed is derived from ``step`` alone."""
    lineage: list[tuple[int, int, int]]
    """(version, step, parent)"""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    path: Path
    manifest: CheckpointManifest

    @property
    def learner(self) -> Path:
        return self.path / "learner"

    @property
    def lineage(self) -> Lineage:
        return Lineage(
            {
                version: LineageEntry(Version(version), step, Version(parent))
                for version, step, parent in self.manifest.lineage
            }
        )

    def ledger(self) -> Iterator[LedgerLine]:
        """Every step of the run up to this checkpoint, in order."""
        with (self.path / _LEDGER).open("rb") as file:
            for line in map(orjson.loads, file):
                yield LedgerLine(line["step"], line["version"], tuple(line["trained"]), line["dropped"])


def require_no_older(journal: Path, books: Accounting, manifest: CheckpointManifest) -> None:
    """Raises UserError where ``journal``, which has ``books`` once it is rewound to the step of ``manifest``, does not
    know all that it knew when that was written; what a recovery has named as lost it need not know."""
    acked, trained = (cast("int", manifest.accounting[kind]) for kind in ("acked", "trained"))
    if books.acked + books.lost < acked or books.trained + books.lost < trained:
        raise UserError(
            f"{journal} is older than the checkpoint of step {manifest.step}: it knows of {books.acked} acknowledged "
            f"and {books.trained} trained trajectories, where there were {acked} and {trained}, and would give some to "
            f"be trained again. Put the right one back, with its {journal.name}-wal, or move the checkpoints away that "
            "are newer than it"
        )


class CheckpointStore:
    """The checkpoints of one run: the newest ``keep``, from which it can go on, and with ``keep_first`` that of step 0
    too, which can only be replayed once it is older than those (:mod:`launch.replay`)."""

    def __init__(self, run_dir: Path, keep: int, *, keep_first: bool = False) -> None:
        self._folder, self._keep, self._keep_first = run_dir / "checkpoints", keep, keep_first

    def begin(self, step: int) -> Path:
        """An empty folder for the learner's shards of ``step``."""
        for killed in self._folder.glob(f"step-*{_UNFINISHED}"):
            shutil.rmtree(killed, ignore_errors=True)
        unfinished = self._folder / f"step-{step:06d}{_UNFINISHED}"
        shards = unfinished / "learner"
        shards.mkdir(parents=True)
        return shards

    def finish(self, manifest: CheckpointManifest, ledger: Iterable[LedgerLine]) -> Checkpoint:
        """Make what :meth:`begin` started a checkpoint.  ``ledger``: the steps since the one before it, behind whose
        own they are written."""
        before = [each.path for each in self.all() if each.manifest.step < manifest.step]
        unfinished = self._folder / f"step-{manifest.step:06d}{_UNFINISHED}"
        for file in unfinished.rglob("*"):
            sync(file)
        if before:
            shutil.copyfile(before[-1] / _LEDGER, unfinished / _LEDGER)
        _append(unfinished / _LEDGER, b"".join(orjson.dumps(asdict(line)) + b"\n" for line in ledger))
        _append(unfinished / _MANIFEST, orjson.dumps(asdict(manifest), option=orjson.OPT_INDENT_2))
        sync(unfinished)
        final = self._folder / f"step-{manifest.step:06d}"
        shutil.rmtree(final, ignore_errors=True)  # a step that a resume rolled back is taken again
        unfinished.rename(final)
        sync(self._folder)
        return Checkpoint(final, manifest)

    def all(self) -> Sequence[Checkpoint]:
        """Complete checkpoints, oldest first."""
        return [
            _read(path)
            for path in sorted(self._folder.glob("step-*"))
            if (path / _MANIFEST).exists() and not path.name.endswith(_UNFINISHED)
        ]

    def latest(self) -> Checkpoint | None:
        found = self.all()
        return found[-1] if found else None

    def prune(self) -> int:
        """Remove all but the newest ``keep``, and the first if it is to stay for replays; the step of the oldest that a
        run can go on from.  What a crash leaves of those that were to go, :meth:`begin` removes."""
        found = self.all()
        for old in found[int(self._keep_first) : -self._keep]:
            shutil.rmtree(old.path.rename(f"{old.path}{_UNFINISHED}"))
        return found[-self._keep :][0].manifest.step


def _read(path: Path) -> Checkpoint:
    try:
        value = orjson.loads((path / _MANIFEST).read_bytes())
        value["lineage"] = [tuple(entry) for entry in value["lineage"]]
        return Checkpoint(path, CheckpointManifest(**value))
    except (OSError, orjson.JSONDecodeError, TypeError, KeyError) as error:
        raise UserError(
            f"the checkpoint {path} is damaged ({error}): move it away to resume from the one before it (one of step 0 "
            "that is there for checkpoint.keep_first can only be replayed)"
        ) from error


def _append(path: Path, data: bytes) -> None:
    append_whole(path, data)
    sync(path)
