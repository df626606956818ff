"""Writes the selected trajectories, all or nothing.  Nothing is overwritten."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from launch.export import atif, hugging_face, sharegpt
from launch.export.selection import ExportItem, TrajectorySelection
from launch.trajectory_reader.recorded_trajectory import RecordedTrajectory
from launch.trajectory_reader.trajectory_lookup import TrajectorySource
from protocol.errors import UserError
from protocol.files.filesystem import build_folder, fsync_path


class ExportFormat(StrEnum):
    SHAREGPT = "sharegpt"
    """One file, a conversation a line."""
    ATIF = "atif"
    """A folder, a JSON file for each trajectory."""
    HUGGINGFACE = "huggingface"
    """A folder with Parquet files and a card."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    format: ExportFormat
    output: Path
    filters: str
    """The filters as text for people."""


def export_trajectories(sources: Sequence[TrajectorySource], asked: ExportOptions, choice: TrajectorySelection) -> None:
    """Write the selected trajectories; ``choice`` counts them.  Raises UserError where there is nothing to write, or
    no place for it."""
    _check_free(asked.output)
    chosen = choice.select(_items(sources, choice), _FITS.get(asked.format, _anything))
    with _explain_write_errors(asked.output):
        match asked.format:
            case ExportFormat.SHAREGPT:
                _write_conversations(asked.output, _require_some(chosen, choice))
            case ExportFormat.ATIF:
                _write_trajectories(asked.output, _require_some(chosen, choice))
            case ExportFormat.HUGGINGFACE:
                names = [source.origin.source for source in sources]
                _write_data_set(asked, names, _require_some(chosen, choice))


def _anything(recorded: RecordedTrajectory) -> bool:
    del recorded
    return True


_FITS: dict[ExportFormat, Callable[[RecordedTrajectory], bool]] = {ExportFormat.SHAREGPT: sharegpt.is_representable}


def _items(sources: Sequence[TrajectorySource], choice: TrajectorySelection) -> Iterator[ExportItem]:
    for source in sources:
        for recorded in source.read_matching(choice.accepts):
            yield ExportItem(recorded, source.origin)


def _require_some(items: Iterable[ExportItem], choice: TrajectorySelection) -> Iterator[ExportItem]:
    """Yield ``items``.  Raises UserError at their end if none was selected."""
    yield from items
    if not choice.selected:
        reasons = ", ".join(f"{count} for {reason}" for reason, count in choice.excluded.items())
        raise UserError(
            "nothing is left to export"
            + (
                f" ({reasons} left out): ask for more, with other filters"
                if reasons
                else ": there is no trajectory yet"
            )
        )


def _write_conversations(output: Path, items: Iterator[ExportItem]) -> None:
    encoder = msgspec.json.Encoder()
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.name}.partial")
    try:
        with partial.open("wb") as file:
            for item in items:
                file.write(encoder.encode(sharegpt.to_sharegpt(item)) + b"\n")
        fsync_path(partial)
        partial.rename(output)
    finally:
        partial.unlink(missing_ok=True)


def _write_trajectories(output: Path, items: Iterator[ExportItem]) -> None:
    encoder = msgspec.json.Encoder()
    with build_folder(output) as partial:
        for item in items:
            (partial / atif.file_name(item.recorded)).write_bytes(encoder.encode(atif.to_atif(item)) + b"\n")


def _write_data_set(asked: ExportOptions, sources: Sequence[str], items: Iterator[ExportItem]) -> None:
    with build_folder(asked.output) as partial:
        rows = hugging_face.write_dataset(partial, items)
        text = hugging_face.render_dataset_card(asked.output.name, sources, rows, asked.filters)
        (partial / "README.md").write_text(text, encoding="utf-8")


def _check_free(output: Path) -> None:
    if output.exists():
        raise UserError(
            f"{output} exists, and nothing is overwritten: give another place, --output PATH, or remove it "
            f"(rm -r {shlex.quote(str(output))})"
        )


@contextmanager
def _explain_write_errors(output: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        room = ", after freeing some room" if error.errno == errno.ENOSPC else ""
        raise UserError(f"cannot write {output}: {error.strerror}; name another place, --output PATH{room}") from error
