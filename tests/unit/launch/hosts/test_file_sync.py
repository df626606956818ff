"""If these fail, what happens on other machines is not seen, seen twice, or costs the run's own disk its files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.runtime.remote_errors import ActorUnavailable
from launch.hosts import file_sync
from launch.hosts.file_sync import (
    REMOVED,
    ChangedFile,
    ChangedFiles,
    FileSync,
    ForeignPathError,
    PieceRequest,
    list_changed_files,
    read_pieces,
)
from launch.hosts.node_agent import LogSync, NodeAgent, ScratchFolderMaker
from protocol.errors import InfraError
from protocol.events import EventLog
from tests.support.actors.local_actors import LocalRemote
from tests.support.other_user import needs_root

HOUR_S = 3600.0


def bring(there: Path, to: FileSync) -> None:
    """One look, and all that it found."""
    to.record_changes(list_changed_files(there, to.last_listed_at, settled_s=HOUR_S))
    while wants := to.next_requests():
        to.append_pieces(wants, read_pieces(there, wants))


def append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


@given(st.lists(st.tuples(st.sampled_from(["a.cast", "b.log"]), st.binary(max_size=40)), max_size=20), st.data())
def test_growing_remote_files_are_copied_byte_for_byte(writes: list[tuple[str, bytes]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_sync, "PIECE_BYTES", 7)
        there, here = Path(folder) / "there", Path(folder) / "here"
        brought = FileSync(here)
        for name, written in writes:
            append(there / "terminals" / name, written)
            if data.draw(st.booleans()):
                bring(there, brought)
        bring(there, brought)
        for path in there.rglob("*.*"):
            if path.stat().st_size:
                assert (here / path.relative_to(there)).read_bytes() == path.read_bytes()


def test_only_whole_lines_of_event_files_are_copied(tmp_path: Path) -> None:
    """The half line of a process that died is removed by its successor there, and would stay here for ever."""
    there, here = tmp_path / "there", tmp_path / "here"
    brought, log = FileSync(here), there / "events" / "worker-1-0.jsonl"
    append(log, b'{"seq": 0}\n{"se')
    bring(there, brought)
    assert (here / "events" / log.name).read_bytes() == b'{"seq": 0}\n'
    os.truncate(log, len(b'{"seq": 0}\n'))
    append(log, b'{"seq": 1}\n')
    bring(there, brought)
    assert (here / "events" / log.name).read_bytes() == b'{"seq": 0}\n{"seq": 1}\n'


def test_a_file_of_an_earlier_start_is_continued_after_its_last_whole_line(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    append(here / "events" / "w.jsonl", b'{"start": 1}\n{"torn')
    append(there / "events" / "w.jsonl", b'{"start": 2}\n')
    bring(there, FileSync(here))
    assert (here / "events" / "w.jsonl").read_bytes() == b'{"start": 1}\n{"start": 2}\n'


def test_a_long_file_keeps_no_short_one_waiting(tmp_path: Path) -> None:
    brought = FileSync(tmp_path)
    long = file_sync.PIECE_BYTES * 100
    brought.record_changes(
        ChangedFiles(1.0, (ChangedFile("starts/1/logs/engine.log", long), ChangedFile("events/w.jsonl", 10)))
    )
    first, *others = brought.next_requests()
    assert first == PieceRequest("events/w.jsonl", 0, 10)
    assert sum(want.bytes for want in others) <= file_sync.PIECE_BYTES


class Telling:
    """Fake: a machine that tells each change once: whoever was told and did not take it has to keep it in mind."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._at: dict[str, float] = {}
        self._clock = 1.0

    def write(self, path: str, data: bytes) -> None:
        """Behind the last whole line, as a process does that takes a dead one's place."""
        self._files[path] = self.whole(path) + data
        self._at[path] = self._clock

    def whole(self, path: str) -> bytes:
        written = self._files.get(path, b"")
        return written[: written.rfind(b"\n") + 1]

    def looked(self, since: float) -> ChangedFiles:
        self._clock += 1.0
        found = (ChangedFile(path, len(data)) for path, data in self._files.items() if self._at[path] >= since)
        return ChangedFiles(self._clock, tuple(found))

    def read(self, wants: Sequence[PieceRequest]) -> list[bytes]:
        return [self._files[want.path][want.offset :][: want.bytes] for want in wants]


LINES = ("events/a.jsonl", "events/b.jsonl", "activity/c.jsonl")
WRITES = st.tuples(st.sampled_from(LINES), st.binary(max_size=9).map(lambda data: data.replace(b"\n", b"-")))


@given(st.lists(st.tuples(WRITES, st.booleans(), st.integers(0, 3)), max_size=30), st.integers(1, 40))
def test_every_whole_line_is_copied_exactly_once_despite_interruptions(
    steps: list[tuple[tuple[str, bytes], bool, int]], room: int
) -> None:
    """Processes die in the middle of a line, and cables are cut in the middle of a look."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_sync, "PIECE_BYTES", 20)
        patch.setattr(file_sync, "BATCH_BYTES", room)
        there, brought = Telling(), FileSync(Path(folder))
        for (path, data), torn, rounds in steps:
            there.write(path, data + b"\n" * (not torn))
            if rounds:
                brought.record_changes(there.looked(brought.last_listed_at))
            for _ in range(rounds - 1):
                wants = brought.next_requests()
                brought.append_pieces(wants, there.read(wants))
        brought.record_changes(there.looked(brought.last_listed_at))
        while wants := brought.next_requests():
            brought.append_pieces(wants, there.read(wants))
        for path in LINES:
            here = Path(folder) / path
            assert (here.read_bytes() if here.exists() else b"") == there.whole(path)


def test_a_line_longer_than_a_batch_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Much has gathered behind a cable that was cut, and a process that has ended writes nothing more."""
    monkeypatch.setattr(file_sync, "BATCH_BYTES", 100)
    there, here = tmp_path / "there", tmp_path / "here"
    append(there / "events" / "a.jsonl", b"1" * 89 + b"\n")
    append(there / "events" / "b.jsonl", b"2" * 199 + b"\n")
    bring(there, FileSync(here))
    assert [(here / "events" / name).stat().st_size for name in ("a.jsonl", "b.jsonl")] == [90, 200]


def test_a_restarted_recording_replaces_the_earlier_copy(tmp_path: Path) -> None:
    """The recording of a reissued request begins anew: in a resumed run, or on the same machine."""
    there, here = tmp_path / "there" / "terminals", tmp_path / "here"
    append(here / "terminals" / "t-a0.cast", b"cut off with the head")
    append(there / "t-a0.cast", b"the second")
    brought = FileSync(here)
    bring(there.parent, brought)
    assert (here / "terminals" / "t-a0.cast").read_bytes() == b"the second"
    (there / "t-a0.cast").unlink()
    append(there / "t-a0.cast", b"third")
    bring(there.parent, brought)
    append(there / "t-a0.cast", b" and more of it")
    bring(there.parent, brought)
    assert (here / "terminals" / "t-a0.cast").read_bytes() == b"third and more of it"


def test_finished_recordings_are_removed_from_the_other_machine(tmp_path: Path) -> None:
    """A run of weeks records a terminal for each attempt, and looks at all that are there three times a second."""
    there, brought = tmp_path / "there", FileSync(tmp_path / "here")
    old, new = there / "terminals" / "old.cast", there / "terminals" / "new.cast"
    append(old, b"old")
    bring(there, brought)
    append(new, b"new")
    later = brought.last_listed_at + 2 * HOUR_S
    os.utime(new, (later, later))
    looked = list_changed_files(there, brought.last_listed_at + 10.0, settled_s=HOUR_S, now=later)
    assert set(looked.files) == {ChangedFile("terminals/old.cast", REMOVED), ChangedFile("terminals/new.cast", 3)}
    assert not old.exists()
    brought.record_changes(looked)
    assert brought.next_requests() == (PieceRequest("terminals/new.cast", 0, 3),)


@pytest.mark.parametrize("path", ["events/../../etc/passwd", "buffer/journal.sqlite", "/etc/passwd", "events"])
def test_paths_other_than_those_that_actors_write_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ForeignPathError):
        FileSync(tmp_path).record_changes(ChangedFiles(1.0, (ChangedFile(path, 9),)))
    with pytest.raises(ForeignPathError):
        read_pieces(tmp_path, [PieceRequest(path, 0, 9)])


@pytest.mark.parametrize("name", ["events/w.jsonl", "events", "starts/1", "starts/1/logs/w.jsonl"])
def test_no_file_elsewhere_is_read_through_a_link(tmp_path: Path, name: str) -> None:
    there, secret = tmp_path / "there", tmp_path / "elsewhere"
    for each in ("w.jsonl", "logs/w.jsonl"):
        append(secret / each, b"secret\n")
    place = there / name
    place.parent.mkdir(parents=True)
    place.symlink_to(secret / "w.jsonl" if name.endswith(".jsonl") else secret)
    assert list_changed_files(there, 0.0, settled_s=HOUR_S).files == ()
    wanted = [PieceRequest(each, 0, 100) for each in ("events/w.jsonl", "starts/1/logs/w.jsonl")]
    assert read_pieces(there, wanted) == [b"", b""]


def test_a_pipe_in_a_files_place_stops_no_sync(tmp_path: Path) -> None:
    append(tmp_path / "events" / "w.jsonl", b"{}\n")
    os.mkfifo(tmp_path / "events" / "pipe.jsonl")
    assert [file.path for file in list_changed_files(tmp_path, 0.0, settled_s=HOUR_S).files] == ["events/w.jsonl"]
    assert read_pieces(tmp_path, [PieceRequest("events/pipe.jsonl", 0, 100)]) == [b""]


@needs_root
def test_no_run_writes_to_a_folder_that_another_account_made(tmp_path: Path) -> None:
    (tmp_path / "run-1").mkdir()
    os.chown(tmp_path / "run-1", 65534, 65534)
    with pytest.raises(InfraError, match=r"run-1 is not a folder that only .*--set cluster\.scratch_dir=FOLDER"):
        ScratchFolderMaker().make(tmp_path / "run-1")


class CutCable:
    """Fake: a host behind a cable that is cut for the first calls."""

    def __init__(self, folder: Path, cuts: int) -> None:
        self._folder, self.cuts = folder, cuts

    def _pass(self) -> None:
        if self.cuts:
            self.cuts -= 1
            raise ActorUnavailable("node-agent-1", "the cable is cut")

    async def list_changed_files(self, since: float) -> ChangedFiles:
        self._pass()
        return list_changed_files(self._folder, since, settled_s=HOUR_S)

    async def read_pieces(self, wants: Sequence[PieceRequest]) -> list[bytes]:
        self._pass()
        return read_pieces(self._folder, wants)


async def test_lines_written_during_a_network_failure_are_copied_later_and_the_failure_is_logged(
    tmp_path: Path,
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    append(there / "events" / "w.jsonl", b"{}\n")
    cable, events = CutCable(there, cuts=2), EventLog(here, "driver", "node-0")
    log_sync = LogSync(LocalRemote[NodeAgent](cable, "node-agent-1"), FileSync(here), events)
    await log_sync.finish()
    await log_sync.finish()
    assert not (here / "events" / "w.jsonl").exists()
    await log_sync.finish()
    events.close()
    assert (here / "events" / "w.jsonl").read_bytes() == b"{}\n"
    logged = (here / "events" / "driver.jsonl").read_text()
    assert logged.count("host.log_sync_failed") == 1
    assert "the cable is cut" in logged
