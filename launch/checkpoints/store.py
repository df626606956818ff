"""The checkpoints of a run on disk; a folder is a checkpoint only once it contains its manifest.

``checkpoints/step-000004/{learner/, ledger.jsonl, manifest.json}``.  The learner's shards are written and fsynced
first, then the ledger and the manifest, then one rename makes them a checkpoint: a crash at any point leaves the older
checkpoints, with or without this one, never half of it.  The manifest alone decides which trajectories are consumed.
It has the checksum of every file and its own: a damaged checkpoint is set aside (``step-000004.torn``), and a run
resumes from the one before.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

import orjson
import xxhash

from launch.checkpoints.retention import best_step, select_steps_to_keep
from launch.settings.checkpoint import RetentionSettings
from protocol.errors import UserError
from protocol.files.digests import FileDigest, digest_file, find_damage
from protocol.files.filesystem import append_atomically, fsync_path, replace_file
from protocol.journal import JournalAccounting
from protocol.weights import Lineage, LineageEntry, WeightVersion

_MANIFEST = "manifest.json"
_LEDGER = "ledger.jsonl"
_SHARDS = "learner"
_UNFINISHED, _TORN = ".unfinished", ".torn"
_STEP = re.compile(r"step-\d+")
_SCORES = "scores.json"
_CHECKSUM = "xxh3"
"""Key of the manifest's checksum of everything else in it."""


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """The trajectories of one optimizer step."""

    step: int
    version: int
    """Version that the step started from."""
    trained: tuple[str, ...]
    """Trajectories that were trained, in the learner's order."""
    dropped: dict[str, str]
    """Trajectory → reason, of those in the batch that were not trained."""


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    step: int
    version: int
    """Version under which these weights were published."""
    start_number: int
    accounting: dict[str, object]
    """Accounting of the journal when the state was copied; what is consumed follows from ``step`` alone."""
    lineage: list[tuple[int, int, int]]
    """(version, step, parent)"""
    files: dict[str, FileDigest]
    """Digests of the other files of the folder; :meth:`CheckpointStore.finish` adds the ledger's."""


def shard_digests(written: Mapping[str, FileDigest]) -> dict[str, FileDigest]:
    """Return the learner's files as those of a manifest."""
    return {f"{_SHARDS}/{name}": digest for name, digest in written.items()}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    path: Path
    manifest: CheckpointManifest

    @property
    def learner(self) -> Path:
        return self.path / _SHARDS

    @property
    def lineage(self) -> Lineage:
        return Lineage(
            {
                version: LineageEntry(WeightVersion(version), step, WeightVersion(parent))
                for version, step, parent in self.manifest.lineage
            }
        )

    def ledger(self) -> Iterator[LedgerLine]:
        """Yield every step of the run up to this checkpoint, in order."""
        with (self.path / _LEDGER).open("rb") as file:
            for line in map(orjson.loads, file):
                yield LedgerLine(line["step"], line["version"], tuple(line["trained"]), line["dropped"])


def require_journal_covers(journal: Path, accounting: JournalAccounting, manifest: CheckpointManifest) -> None:
    """Raise UserError if the journal, rewound to the step of ``manifest``, lacks trajectories that it had when the
    checkpoint was written, other than those that a repair has reported as lost."""
    acknowledged, trained = (cast("int", manifest.accounting[kind]) for kind in ("acknowledged", "trained"))
    if accounting.acknowledged + accounting.lost < acknowledged or accounting.trained + accounting.lost < trained:
        raise UserError(
            f"{journal} is older than the checkpoint of step {manifest.step}: it knows of "
            f"{accounting.acknowledged} acknowledged "
            f"and {accounting.trained} trained trajectories, where there were {acknowledged} and {trained}, and "
            "would give some to "
            f"be trained again. Put the right one back, with its {journal.name}-wal, or move the checkpoints away that "
            "are newer than it"
        )


def require_intact(checkpoint: Checkpoint) -> None:
    """Raise UserError if a file of the checkpoint is damaged."""
    if (damage := find_damage(checkpoint.path, checkpoint.manifest.files)) is not None:
        raise UserError(f"the checkpoint {checkpoint.path} is damaged: {damage}. Put a good copy of it in its place")


class CheckpointStore:
    """The checkpoints of one run, of which ``retention`` keeps some."""

    def __init__(
        self, run_dir: Path, retention: RetentionSettings, on_torn: Callable[[Path, str], None] | None = None
    ) -> None:
        """``on_torn`` is called with the new path of each damaged checkpoint that is set aside, and its damage."""
        self._folder, self._retention, self.on_torn = run_dir / "checkpoints", retention, on_torn
        self._expected_scores: frozenset[int] = frozenset()

    def begin(self, step: int) -> Path:
        """Make an empty folder for the learner's shards of ``step``."""
        self.abandon()
        shards = self.shards_folder(step)
        shards.mkdir(parents=True)
        return shards

    def shards_folder(self, step: int) -> Path:
        """Return the folder that :meth:`begin` makes."""
        return self._unfinished_folder(step) / _SHARDS

    def _unfinished_folder(self, step: int) -> Path:
        return self._folder / f"step-{step:06d}{_UNFINISHED}"

    def abandon(self) -> None:
        """Remove unfinished checkpoints."""
        for unfinished in self._folder.glob(f"step-*{_UNFINISHED}"):
            shutil.rmtree(unfinished, ignore_errors=True)

    def finish(self, manifest: CheckpointManifest, ledger: Iterable[LedgerLine]) -> Checkpoint:
        """Complete the checkpoint that :meth:`begin` started.  ``ledger`` has the steps since the previous checkpoint,
        which are appended to that one's ledger.  Raises OSError if the shards are not those of the manifest."""
        before = [each.path for each in self.list_checkpoints() if each.manifest.step < manifest.step]
        unfinished = self._unfinished_folder(manifest.step)
        _require_written(unfinished, manifest.files)
        if before:
            shutil.copyfile(before[-1] / _LEDGER, unfinished / _LEDGER)
        _append(unfinished / _LEDGER, b"".join(orjson.dumps(asdict(line)) + b"\n" for line in ledger))
        whole = replace(manifest, files={**manifest.files, _LEDGER: digest_file(unfinished / _LEDGER)})
        _append(unfinished / _MANIFEST, _encode_manifest(whole))
        for folder in (unfinished / _SHARDS, unfinished):
            fsync_path(folder)
        final = self._folder / f"step-{manifest.step:06d}"
        shutil.rmtree(final, ignore_errors=True)  # a step that a resume rolled back is taken again
        unfinished.rename(final)
        fsync_path(self._folder)
        return Checkpoint(final, whole)

    def list_checkpoints(self) -> Sequence[Checkpoint]:
        """Return the checkpoints with a readable manifest, oldest first."""
        found: list[Checkpoint] = []
        for path in self._complete_folders():
            try:
                found.append(_read_checkpoint(path))
            except _TornCheckpointError:
                continue
        return found

    def newest_intact(self) -> Checkpoint | None:
        """Return the newest checkpoint whose files are all as they were written, and set newer ones aside.  None if
        there is no checkpoint; raises UserError if there are only damaged ones."""
        torn: list[tuple[Path, str]] = []
        for path in reversed(self._complete_folders()):
            try:
                sound = _read_verified(path)
            except _TornCheckpointError as error:
                torn.append((path, str(error)))
                continue
            for each, why in torn:
                aside = each.with_name(each.name + _TORN)
                shutil.rmtree(aside, ignore_errors=True)
                each.rename(aside)
                if self.on_torn is not None:
                    self.on_torn(aside, why)
            return sound
        if not torn:
            return None
        newest, why = torn[0]
        raise UserError(
            f"none of the {len(torn)} checkpoints in {self._folder} is whole; of {newest.name}, {why}. Put a good copy "
            "of one in its place and --resume, or start a new run"
        )

    def _complete_folders(self) -> list[Path]:
        return [path for path in sorted(self._folder.glob("step-*")) if _STEP.fullmatch(path.name)]

    def prune(self) -> int:
        """Remove the checkpoints that the retention does not keep; return the step of the oldest one that a run can
        resume from.  :meth:`begin` removes what a crash leaves of a removal."""
        found = self.list_checkpoints()
        kept = select_steps_to_keep(
            self._retention, [each.manifest.step for each in found], self.scores(), self._expected_scores
        )
        for old in found:
            if old.manifest.step not in kept:
                shutil.rmtree(old.path.rename(f"{old.path}{_UNFINISHED}"))
        return found[-self._retention.keep :][0].manifest.step

    # -- scores --------------------------------------------------------------------------------------------------

    def scores(self) -> dict[int, float]:
        """Return step → score on held-out tasks of its weights, for each step that was evaluated."""
        try:
            read: dict[str, float] = orjson.loads((self._folder / _SCORES).read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError):
            return {}
        return {int(step): score for step, score in read.items()}

    def expect_score(self, step: int | None) -> None:
        """Keep the checkpoint of ``step``, and of no other step, until its score is known."""
        self._expected_scores = frozenset() if step is None else frozenset({step})

    def record_score(self, step: int, score: float) -> None:
        """Record the score of the weights of ``step``."""
        self._write_scores(self.scores() | {step: score})

    def drop_scores_after(self, step: int) -> None:
        """Drop the scores of steps after ``step``, whose weights are discarded."""
        scores = self.scores()
        if any(each > step for each in scores):
            self._write_scores({each: score for each, score in scores.items() if each <= step})

    def best_scored(self) -> tuple[Checkpoint, float] | None:
        """Return the checkpoint with the best score, the later one of equals; None if no checkpoint has a score."""
        scores, checkpoints = self.scores(), {each.manifest.step: each for each in self.list_checkpoints()}
        step = best_step(checkpoints, scores)
        return None if step is None else (checkpoints[step], scores[step])

    def _write_scores(self, scores: Mapping[int, float]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._folder / _SCORES, orjson.dumps({str(step): score for step, score in scores.items()}))


class _TornCheckpointError(Exception):
    """A checkpoint is damaged."""


def _encode_manifest(manifest: CheckpointManifest) -> bytes:
    body = asdict(manifest)
    return orjson.dumps(body | {_CHECKSUM: _checksum(body)}, option=orjson.OPT_INDENT_2)


def _checksum(body: Mapping[str, object]) -> str:
    return xxhash.xxh3_128_hexdigest(orjson.dumps(dict(body), option=orjson.OPT_SORT_KEYS))


def _read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint's manifest.  Raises _TornCheckpointError if it is damaged."""
    try:
        value: dict[str, object] = orjson.loads((path / _MANIFEST).read_bytes())
        checksum = value.pop(_CHECKSUM)
        if checksum != _checksum(value):
            raise _TornCheckpointError(f"{_MANIFEST} is not what was written: its checksum is another")
        value["lineage"] = [tuple(entry) for entry in cast("list[list[int]]", value["lineage"])]
        files = cast("dict[str, dict[str, object]]", value["files"])
        value["files"] = {name: FileDigest(**digest) for name, digest in files.items()}  # pyright: ignore[reportArgumentType]  the checksum says that these are what was written
        return Checkpoint(path, CheckpointManifest(**value))  # pyright: ignore[reportArgumentType]  as above
    except (OSError, orjson.JSONDecodeError, TypeError, KeyError) as error:
        raise _TornCheckpointError(f"{_MANIFEST} cannot be read ({error})") from error


def _read_verified(path: Path) -> Checkpoint:
    """Read a checkpoint and check all its files.  Raises _TornCheckpointError if one is damaged."""
    found = _read_checkpoint(path)
    if (damage := find_damage(path, found.manifest.files)) is not None:
        raise _TornCheckpointError(damage)
    return found


def _require_written(folder: Path, files: Mapping[str, FileDigest]) -> None:
    """Raise OSError unless the folder has exactly ``files`` with their sizes; the learner has read back their
    contents."""
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    if sizes != {name: known.bytes for name, known in files.items()}:
        raise OSError(f"{folder} does not hold the files that the learner wrote: {sorted(sizes)}, not {sorted(files)}")


def _append(path: Path, data: bytes) -> None:
    append_atomically(path, data)
    fsync_path(path)
