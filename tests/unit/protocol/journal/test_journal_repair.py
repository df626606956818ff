"""If these fail, one bad sector costs a run all that its workers were told is safe."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from protocol import codec
from protocol.errors import UserError
from protocol.journal import AppendOutcome, Journal, JournalError, JournalSettings, TrajectoryArrival
from protocol.journal.repair import JOURNAL_FILE, check_journal, recover_journal, require_journal
from protocol.journal.schema import TABLES
from protocol.run_directory.trajectory_export import TrajectoryExporter, read_export_index
from protocol.trajectory import DropReason, GroupId, make_trajectory_id
from tests.support.commands import call_json
from tests.support.runs.trajectories import RUN, make_plan, make_trajectory

SETTINGS = JournalSettings(
    run_id=RUN, max_trajectory_bytes=1 << 20, budget_bytes=1 << 30, disk_floor_bytes=0, dynamic_sampling=True
)
GROUPS = 6


def open_journal(run_dir: Path) -> Journal:
    return Journal(run_dir / JOURNAL_FILE, SETTINGS)


def arrival(group: int, sample: int, reward: float | None = None) -> tuple[codec.TrajectorySummary, TrajectoryArrival]:
    reward = float(sample) if reward is None else reward
    trajectory = make_trajectory(group, sample, reward=reward, sampled=6500)
    frames = codec.encode_trajectory(trajectory)
    summary = codec.inspect_frames(frames, max_bytes=1 << 20)
    return summary, TrajectoryArrival(
        *(summary.request, reward, summary.passed, summary.status),
        *(summary.digest, codec.pack_frames(frames), summary.sampled),
    )


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Twenty-four acknowledged trajectories, all but four of them exported; one group is trained."""
    journal, exporter = open_journal(tmp_path), TrajectoryExporter(tmp_path)
    for group in range(GROUPS):
        journal.open_group(make_plan(group), b"cursor")
        for sample in range(4):
            summary, row = arrival(group, sample)
            journal.append_batch([row])
            if group:
                exporter.export_trajectory(summary, row.blob)
    lease = journal.lease_batch(1)
    assert lease is not None
    journal.mark_trained(1, lease.trajectory_ids, {})
    journal.close()
    return tmp_path


def overwrite(run_dir: Path, needle: bytes, size: int, byte: bytes = b"\xff") -> None:
    """Bad bytes in the journal's file, from the last occurrence of ``needle`` on."""
    path = run_dir / JOURNAL_FILE
    data = bytearray(path.read_bytes())
    at = data.rindex(needle)
    data[at : at + size] = byte * size
    path.write_bytes(data)


def without_export(run_dir: Path) -> None:
    for path in (run_dir / "trajectories").iterdir():
        path.unlink()


def members(journal: Journal) -> dict[int, list[int]]:
    """Group → samples, of all that can be leased, their bytes read."""
    lease = journal.lease_batch(journal.statistics().ready)
    assert lease is not None
    assert [
        codec.unpack_trajectory(blob).request.trajectory_id for blob in journal.read_payloads(lease)
    ] == lease.trajectory_ids
    return {group.group: [row.sample for row in group.trajectories] for group in lease.groups}


def command(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, object], str]:
    done = call_json(capfd, "protocol.journal", *arguments)
    return done.exit_code, done.output, done.stderr


def test_an_intact_journal_passes_the_check(run_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = check_journal(run_dir / JOURNAL_FILE)
    assert found.whole
    assert found.payloads == 4 * GROUPS
    code, report, _ = command(capfd, "check", run_dir)
    assert (code, report["ok"], report["payloads"]) == (0, True, 4 * GROUPS)


def test_changed_bytes_on_disk_are_detected_and_restored_from_the_export(
    run_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, row = arrival(3, 2)
    overwrite(run_dir, row.blob[:100], 100)
    code, report, words = command(capfd, "check", run_dir)
    assert (code, report["bad_payloads"]) == (1, ["train-g000003-s02"])
    assert f"recover {run_dir}" in words
    code, report, _ = command(capfd, "recover", run_dir)
    assert (code, report["payloads"], report["from_export"], report["lost"]) == (0, 4 * GROUPS - 1, 1, [])
    assert check_journal(run_dir / JOURNAL_FILE).whole
    journal = open_journal(run_dir)
    lease = journal.lease_batch(GROUPS - 1)
    assert lease is not None
    assert [
        codec.unpack_trajectory(blob).request.trajectory_id for blob in journal.read_payloads(lease)
    ] == lease.trajectory_ids
    accounting = journal.accounting()
    assert (accounting.acknowledged, accounting.trained, accounting.in_buffer) == (4 * GROUPS, 4, 4 * (GROUPS - 1))
    assert journal.append_batch([row])[0] == [AppendOutcome.DUPLICATE]
    assert journal.read_sampler_state() == b"cursor"
    journal.close()


def test_bytes_that_changed_on_the_disk_are_never_handed_to_the_learner(run_dir: Path) -> None:
    _, row = arrival(3, 2)
    overwrite(run_dir, row.blob[:100], 100)
    journal = open_journal(run_dir)
    lease = journal.lease_batch(GROUPS - 1)
    assert lease is not None
    with pytest.raises(JournalError, match=r"bytes of train-g000003-s02 do not match its digest.*journal recover"):
        journal.read_payloads(lease)
    journal.close()


@pytest.mark.parametrize("byte", [b"x", b"\xff"])
def test_a_payload_whose_key_changed_on_the_disk_is_damage_with_advice(run_dir: Path, byte: bytes) -> None:
    _, row = arrival(3, 2)
    overwrite(run_dir, b"train-g000003-s02" + row.blob[:100], 5, byte)
    journal = open_journal(run_dir)
    with pytest.raises(JournalError, match=r"is damaged.*longshore journal recover"):  # noqa: PT012  whichever meets it first
        for _, read in journal.iterate_payloads():
            assert read()
    journal.close()


def test_a_journal_that_was_emptied_is_not_taken_for_that_of_a_new_run(run_dir: Path) -> None:
    (run_dir / JOURNAL_FILE).write_bytes(b"")
    with pytest.raises(UserError, match="is empty"):
        require_journal(run_dir)


@pytest.mark.parametrize("moved", [1, 2])
def test_an_interrupted_recovery_is_finished_by_the_next(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """Otherwise the run would continue with an empty journal, and all acknowledged trajectories would be lost."""
    real, moves = Path.rename, list[Path]()

    def killed(source: Path, target: Path) -> Path:
        if len(moves) == moved:
            raise KeyboardInterrupt
        moves.append(source)
        return real(source, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        recover_journal(run_dir)
    monkeypatch.undo()
    assert (run_dir / JOURNAL_FILE).exists() == (moved == 1)
    if moved == 2:
        with pytest.raises(UserError, match=r"is gone.*journal recover .* again"):
            require_journal(run_dir)
    recovery = recover_journal(run_dir)
    require_journal(run_dir)
    assert (recovery.rows, recovery.lost, recovery.damaged_file.name) == (4 * GROUPS, [], "journal.damaged-1")
    assert check_journal(run_dir / JOURNAL_FILE).whole


def test_only_payloads_missing_from_journal_and_export_are_lost_and_named(run_dir: Path) -> None:
    _, row = arrival(0, 1)  # not exported
    overwrite(run_dir, row.blob[:100], 100)
    recovery = recover_journal(run_dir)
    assert recovery.lost == ["train-g000000-s01"]
    assert recovery.damaged_file.exists()
    assert check_journal(run_dir / JOURNAL_FILE).missing_payloads == recovery.lost


def test_a_lost_trajectory_of_a_rewound_step_does_not_block_the_run(run_dir: Path) -> None:
    """Otherwise a resume would lease its group forever, and no further step would be taken."""
    overwrite(run_dir, arrival(0, 1)[1].blob[:100], 100)
    recover_journal(run_dir)
    journal = open_journal(run_dir)
    journal.rewind_to_step(0)
    assert members(journal) == {0: [0, 2, 3], **{group: [0, 1, 2, 3] for group in range(1, GROUPS)}}
    accounting = journal.accounting()
    assert (accounting.acknowledged, accounting.in_buffer, accounting.lost, accounting.abandoned) == (
        4 * GROUPS - 1,
        4 * GROUPS - 1,
        1,
        1,
    )
    journal.close()


@pytest.mark.parametrize("samples", [(2,), (1, 2)])
def test_a_group_continues_without_its_lost_members_or_is_dropped_if_too_few_remain(
    run_dir: Path, samples: tuple[int, ...]
) -> None:
    """Otherwise it would be leased forever without its bytes."""
    without_export(run_dir)
    for sample in samples:
        overwrite(run_dir, arrival(3, sample)[1].blob[:100], 100)
    recovery = recover_journal(run_dir)
    assert recovery.lost == [f"train-g000003-s{sample:02d}" for sample in samples]
    assert check_journal(run_dir / JOURNAL_FILE).whole
    journal = open_journal(run_dir)
    journal.rewind_to_step(1)
    remaining = [sample for sample in range(4) if sample not in samples]
    enough = len(remaining) >= 3
    assert members(journal).get(3) == (remaining if enough else None)
    accounting = journal.accounting()
    assert (accounting.acknowledged, accounting.lost) == (4 * GROUPS - len(samples), len(samples))
    assert accounting.dropped == ({} if enough else {DropReason.TOO_FEW_MEMBERS: len(remaining)})
    journal.close()


def test_a_lost_sample_of_an_open_group_is_run_again(run_dir: Path) -> None:
    without_export(run_dir)
    journal = open_journal(run_dir)
    journal.open_group(make_plan(GROUPS), b"cursor")
    journal.append_batch([arrival(GROUPS, sample)[1] for sample in (0, 1)])
    journal.close()
    overwrite(run_dir, arrival(GROUPS, 1)[1].blob[:100], 100)
    assert recover_journal(run_dir).lost == [f"train-g{GROUPS:06d}-s01"]
    journal = open_journal(run_dir)
    (group,) = journal.list_open_groups()
    assert group.missing == (1, 2, 3)
    assert journal.append_batch([arrival(GROUPS, 1)[1]])[0] == [AppendOutcome.APPENDED]
    journal.close()


def test_a_journal_with_a_broken_page_is_refused_and_the_error_names_recovery(run_dir: Path) -> None:
    path = run_dir / JOURNAL_FILE
    data = bytearray(path.read_bytes())
    page = int.from_bytes(data[16:18], "big")
    assert len(list(read_export_index(run_dir))) == 4 * (GROUPS - 1)
    needle = arrival(4, 0)[1].blob[:64]
    start = data.rindex(needle) // page * page
    data[start : start + 200] = bytes(200)
    path.write_bytes(data)
    with pytest.raises(JournalError, match=r"is damaged.*longshore journal recover"):
        open_journal(run_dir)
    recovery = recover_journal(run_dir)
    assert recovery.rows == 4 * GROUPS
    assert recovery.payloads + recovery.from_export + len(recovery.lost) == 4 * GROUPS
    assert not [name for name in recovery.lost if not name.startswith("train-g000000")]
    open_journal(run_dir).close()


def pages_of(run_dir: Path) -> tuple[int, list[int]]:
    """Size of a page, and where the pages begin that are no part of a payload, but the first, which says what a file
    is."""
    data = (run_dir / JOURNAL_FILE).read_bytes()
    size = int.from_bytes(data[16:18], "big")
    trees = {2, 5, 10, 13}
    return size, [start for start in range(size, len(data), size) if data[start] in trees]


def table(run_dir: Path, name: str, columns: str = "*") -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(run_dir / JOURNAL_FILE)) as database:
        return sorted(database.execute(f"SELECT {columns} FROM {name}"))  # noqa: S608  written in this file


PASSED_OVER = {DropReason.ALL_STALE, DropReason.NONFINITE}
ACCOUNTING_TABLES = (
    ("trajectories", "*"),
    ("rollout_requests", "group_id, sample, state"),
    ("groups", "id, task, size, outcome, used"),
)


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_an_unreadable_page_loses_only_data_stored_nowhere_else(run_dir: Path, byte: bytes) -> None:
    """The accounting is rebuilt from the other pages and from the trajectories; of these group 0 is not exported."""
    journal, exporter = open_journal(run_dir), TrajectoryExporter(run_dir)
    journal.open_group(make_plan(GROUPS), b"cursor")
    journal.append_batch([arrival(GROUPS, 1)[1]])
    journal.abandon_sample(GroupId(GROUPS), 2, "engine")
    journal.open_group(make_plan(GROUPS + 1), b"cursor")
    for sample in range(4):
        summary, row = arrival(GROUPS + 1, sample, 1.0)
        journal.append_batch([row])
        exporter.export_trajectory(summary, row.blob)
    lease = journal.lease_batch(1)
    assert lease is not None
    first, *rest = lease.trajectory_ids
    journal.mark_trained(2, rest, {first: DropReason.ALL_STALE})
    acknowledged = journal.accounting().acknowledged
    journal.close()
    before = {name: table(run_dir, name, columns) for name, columns in ACCOUNTING_TABLES}
    held = (GROUPS, 1)
    whole, (size, starts) = (run_dir / JOURNAL_FILE).read_bytes(), pages_of(run_dir)
    assert len(starts) > len(TABLES.split("CREATE TABLE"))
    roots = dict(table(run_dir, "sqlite_master", "name, rootpage"))
    payloads = (roots["payloads"] - 1) * size
    refused = 0
    for start in starts:
        (run_dir / JOURNAL_FILE).write_bytes(whole[:start] + byte * size + whole[start + size :])
        try:
            recovery = recover_journal(run_dir)
        except UserError:
            refused += 1
            continue
        unexported = ("train-g000000", f"train-g{GROUPS:06d}")
        assert all(name.startswith(unexported) for name in recovery.lost)
        assert not recovery.lost or start == payloads or b"LSP2" in whole[start : start + size]
        assert recovery.forgotten_groups == []
        found = {name: table(run_dir, name, columns) for name, columns in ACCOUNTING_TABLES}
        gone = [held] if make_trajectory_id(*held) in recovery.lost else []
        again = [*gone, *([] if (GROUPS, 2, "abandoned") in found["rollout_requests"] else [(GROUPS, 2)])]
        requests = sorted((*row[:2], "running" if row[:2] in again else row[2]) for row in before["rollout_requests"])
        assert found["rollout_requests"] == requests, (
            "what is lost, or not known to be given up, is tried again, and nothing else"
        )
        assert found["trajectories"] == [row for row in before["trajectories"] if row[1:3] not in gone], (
            f"page at {start}"
        )
        assert found["groups"] == before["groups"], f"page at {start}"
        journal = open_journal(run_dir)
        assert (journal.accounting().acknowledged, journal.accounting().lost) == (acknowledged - len(gone), len(gone))
        lease = journal.lease_batch(GROUPS - 2)
        assert lease is not None
        assert len(journal.read_payloads(lease)) == 4 * (GROUPS - 2)
        assert journal.read_sampler_state() == b"cursor"
        journal.close()
    assert refused == 1, "the page of the small values: whose journal it is, and which task is next"


def test_a_heavily_damaged_journal_is_recovered_with_balanced_accounting(run_dir: Path) -> None:
    """Every page of the table of trajectories and its indexes is gone, and the export with it: each that was
    acknowledged is in the accounting or named, and what is missing of an open group is run again."""
    journal = open_journal(run_dir)
    journal.open_group(make_plan(GROUPS), b"cursor")
    journal.append_batch([arrival(GROUPS, 1)[1]])
    journal.close()
    without_export(run_dir)
    gone = {"trajectories", "payloads"}
    roots = {root for name, root in table(run_dir, "sqlite_master", "tbl_name, rootpage") if name in gone}
    size, _ = pages_of(run_dir)
    data = bytearray((run_dir / JOURNAL_FILE).read_bytes())
    for root in roots:
        data[(root - 1) * size : root * size] = bytes(size)
    (run_dir / JOURNAL_FILE).write_bytes(data)
    recovery = recover_journal(run_dir)
    assert (recovery.rows, len(recovery.lost)) == (0, 4 * GROUPS + 1)
    journal = open_journal(run_dir)
    assert journal.accounting().acknowledged == 0
    assert journal.lease_batch(1) is None
    (group,) = journal.list_open_groups()
    assert (group.plan.group, group.missing) == (GROUPS, (0, 1, 2, 3))
    journal.close()


@pytest.mark.parametrize("reasons", [{DropReason.ALL_STALE}, {DropReason.NONFINITE}, PASSED_OVER])
def test_skipped_groups_stay_skipped_after_a_rebuild(run_dir: Path, reasons: set[DropReason]) -> None:
    """Otherwise dropped groups would be leased and trained after all."""
    journal = open_journal(run_dir)
    lease = journal.lease_batch(1)
    assert lease is not None
    why = sorted(reasons)
    journal.mark_trained(1, [], {name: why[n % len(why)] for n, name in enumerate(lease.trajectory_ids)})
    then = journal.lease_batch(1)
    journal.close()
    before = table(run_dir, "groups", "id, outcome, used")
    (root,) = {root for name, root in table(run_dir, "sqlite_master", "name, rootpage") if name == "groups"}
    size, _ = pages_of(run_dir)
    data = bytearray((run_dir / JOURNAL_FILE).read_bytes())
    data[(root - 1) * size : root * size] = bytes(size)
    (run_dir / JOURNAL_FILE).write_bytes(data)
    recover_journal(run_dir)
    assert table(run_dir, "groups", "id, outcome, used") == before
    journal = open_journal(run_dir)
    assert journal.lease_batch(1) == then
    journal.close()


def test_a_file_that_is_not_a_journal_is_refused(run_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (run_dir / JOURNAL_FILE).write_bytes(b"not a database, " * 4096)
    with pytest.raises(JournalError, match="is damaged"):
        open_journal(run_dir)
    with pytest.raises(UserError, match="cannot be read"):
        recover_journal(run_dir)
    assert command(capfd, "recover", run_dir)[0] == 2


@pytest.mark.parametrize("text", [b"ready", b"zero_variance", b"[7,8,9,10]"])
@pytest.mark.parametrize("byte", [b"#", b"\xff"])
def test_an_unknown_value_in_the_journal_is_reported_as_damage_with_advice(
    run_dir: Path, text: bytes, byte: bytes
) -> None:
    """SQLite has no checksum of it and notices nothing."""
    journal = open_journal(run_dir)
    journal.open_group(make_plan(GROUPS), b"cursor")
    for sample in range(4):
        journal.append_batch([arrival(GROUPS, sample, 1.0)[1]])
    journal.open_group(make_plan(GROUPS + 1), b"cursor")
    journal.close()
    data = bytearray((run_dir / JOURNAL_FILE).read_bytes())
    size, starts = pages_of(run_dir)
    places = [data.find(text, start, start + size) for start in starts]
    for at in (place for place in places if place > 0):
        data[at + 2 : at + 3] = byte
    (run_dir / JOURNAL_FILE).write_bytes(data)
    with pytest.raises(JournalError, match=r"is damaged.*longshore journal recover"):  # noqa: PT012  whichever meets it first
        journal = open_journal(run_dir)
        try:
            journal.accounting()
            journal.list_closed_since(0)
            journal.list_open_groups()
        finally:
            journal.close()


def test_a_damaged_table_name_is_reported_as_damage(run_dir: Path) -> None:
    data = (run_dir / JOURNAL_FILE).read_bytes()
    (run_dir / JOURNAL_FILE).write_bytes(
        data.replace(b"trajectories_state ON trajectories", b"trajectories_state ON \xff\xfe\xadjectories", 1)
    )
    with pytest.raises(JournalError, match=r"is damaged.*longshore journal recover"):
        open_journal(run_dir)
    assert check_journal(run_dir / JOURNAL_FILE).damage
    with pytest.raises(UserError, match="cannot be read"):
        recover_journal(run_dir)


def test_a_damaged_column_name_is_reported_as_damage(run_dir: Path) -> None:
    data = (run_dir / JOURNAL_FILE).read_bytes()
    assert b"reward REAL" in data
    (run_dir / JOURNAL_FILE).write_bytes(data.replace(b"reward REAL", b"rewarf REAL", 1))
    with pytest.raises(JournalError, match=r"is damaged.*longshore journal recover"):  # noqa: PT012  whichever meets it first
        journal = open_journal(run_dir)
        try:
            journal.lease_batch(1)
        finally:
            journal.close()


def test_a_journal_of_another_schema_version_is_refused(run_dir: Path) -> None:
    with closing(sqlite3.connect(run_dir / JOURNAL_FILE)) as database, database:
        database.execute("UPDATE meta SET value = 1 WHERE key = 'schema'")
    for use, error in ((open_journal, JournalError), (recover_journal, UserError)):
        with pytest.raises(error, match=r"schema 1.*use the"):
            use(run_dir)


def test_a_run_folder_with_uri_characters_in_its_name_can_be_repaired(
    run_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    named = run_dir.rename(tmp_path_factory.mktemp("runs") / "50%25 #2?mode=memory")
    assert check_journal(named / JOURNAL_FILE).payloads == 4 * GROUPS
    assert recover_journal(named).payloads == 4 * GROUPS


def test_an_open_journal_is_not_checked(run_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    journal = open_journal(run_dir)
    code, _, words = command(capfd, "check", run_dir)
    assert (code, "stop the run first" in words) == (2, True)
    journal.close()
    with pytest.raises(UserError, match="no journal"):
        check_journal(run_dir / "elsewhere" / JOURNAL_FILE)


def test_a_full_segment_of_the_export_is_sealed_and_never_touched_again(tmp_path: Path) -> None:
    exporter = TrajectoryExporter(tmp_path, file_bytes=100_000)
    seen: dict[str, bytes] = {}
    for group in range(4):
        for sample in range(4):
            summary, row = arrival(group, sample)
            exporter.export_trajectory(summary, row.blob)
            for path in sorted((tmp_path / "trajectories").glob("trajectories-*.bin"))[:-1]:
                assert path.stat().st_mode & 0o777 == 0o444
                assert seen.setdefault(path.name, path.read_bytes()) == path.read_bytes()
    assert len(seen) > 2
    assert exporter.failures == 0


def test_a_segment_is_synced_completely_before_it_is_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: dict[Path, tuple[int, bool]] = {}

    def note(path: Path) -> None:
        state = path.stat()
        synced[path] = state.st_size, state.st_mode & 0o222 != 0

    monkeypatch.setattr("protocol.run_directory.blob_files.fsync_path", note)
    exporter = TrajectoryExporter(tmp_path, file_bytes=1)
    for sample in range(3):
        summary, row = arrival(0, sample)
        exporter.export_trajectory(summary, row.blob)
    *sealed, _ = sorted((tmp_path / "trajectories").glob("trajectories-*.bin"))
    assert synced == {path: (path.stat().st_size, True) for path in sealed}
    assert len(sealed) == 2


def test_a_damaged_index_line_loses_only_that_line(run_dir: Path) -> None:
    """Otherwise damage to an index that only readers need would keep the buffer from opening."""
    index = run_dir / "trajectories" / "index.jsonl"
    lines = index.read_bytes().splitlines(keepends=True)
    lines[2], lines[5] = b"\xff" * 20 + b"\n", b'{"other": 1}\n'
    index.write_bytes(b"".join(lines))
    assert len(list(read_export_index(run_dir))) == 4 * (GROUPS - 1) - 2
    names = [f"train-g{group:06d}-s{sample:02d}" for group in range(1, GROUPS) for sample in range(4)]
    assert TrajectoryExporter(run_dir).find_unexported(names) == [names[2], names[5]]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"offset":0,', b'"offset":0.5,'),
        (b'"offset":0,', b'"offset":-9,'),
        (b'"offset":0,', b'"offset":99999999999999999999,'),
        (b'"length":', b'"length":8888888888'),
        (b'"file":"trajectories', b'"file":"\\u0000rajectories'),
        (b'"trajectory":"', b'"trajectory":[],"was":"'),
    ],
)
def test_a_changed_index_line_does_not_stop_a_recovery(run_dir: Path, before: bytes, after: bytes) -> None:
    """Bytes that are nowhere else are lost, and all others kept."""
    index = run_dir / "trajectories" / "index.jsonl"
    index.write_bytes(index.read_bytes().replace(before, after, 1))
    first = next(name for _, name in table(run_dir, "payloads", "rowid, trajectory") if name > "train-g000001")
    for sample, name in enumerate((first, "train-g000003-s02")):
        assert name == make_trajectory_id(1 + 2 * sample, 2 * sample)
        overwrite(run_dir, arrival(1 + 2 * sample, 2 * sample)[1].blob[:100], 100)
    recovery = recover_journal(run_dir)
    assert (recovery.from_export, recovery.lost) == (1, [first])
