"""If these fail, killing a pool server costs agents their sandboxes, or runs a command twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import UserError
from sandbox.http.messages import HttpReply, OkReply
from sandbox.pool.leases import SlotLease
from sandbox.server.journal import LeaseJournal, RememberedLease, StateDirectory
from sandbox.server.operation_record import KnownOperation

LEASE = SlotLease("run-0", "task", 5.0, "request", "group")
RESET = {"task_meta": {"task_name": "é\n"}}


@pytest.fixture
def journal(tmp_path: Path) -> LeaseJournal:
    written = StateDirectory(tmp_path).journal(LEASE.id)
    written.record_lease(LEASE)
    return written


def test_a_lease_is_restored_with_its_container_and_undelivered_operations(journal: LeaseJournal, tmp_path: Path):
    journal.record_sandbox("old", {})
    journal.record_step(0)
    journal.record_sandbox("container", RESET)
    journal.begin("run/a", "d"), journal.end("run/a", HttpReply(200, OkReply()))
    journal.begin("run#1", "e"), journal.end("run#1", HttpReply(200, OkReply())), journal.delivered("run#1")
    journal.begin("exec_tool/b", "f")
    (found,) = StateDirectory(tmp_path).remembered_leases()
    assert (found.lease.id, found.lease.task_key, found.lease.request_id, found.lease.group) == (
        "run-0", "task", "request", "group",
    )  # fmt: skip
    assert (found.container, found.reset, found.step) == ("container", RESET, None)
    assert remembered_operations(found) == {"run/a": ("d", b'{"ok":true}'), "exec_tool/b": ("f", b"")}


def test_a_state_directory_keeps_a_unique_id(tmp_path: Path):
    """Two servers that share an engine would otherwise remove each other's sandboxes."""
    made = [tmp_path / name for name in ("a-b", "a/b", "c")]
    for folder in made:
        with StateDirectory(folder) as held:
            assert held.id == StateDirectory(folder).id
    assert len({StateDirectory(folder).id for folder in made}) == len(made)


def remembered_operations(found: RememberedLease) -> dict[str, tuple[str, bytes]]:
    return {each.key: (each.digest, each.reply.body if each.reply else b"") for each in found.operations.values()}


def test_the_journal_of_a_long_lease_is_rewritten_and_stays_short(journal: LeaseJournal, tmp_path: Path):
    journal.record_sandbox("container", RESET)
    journal.record_step(1)
    sizes: list[int] = []
    for number in range(3000):
        known = [KnownOperation(f"run/{number}", "d", HttpReply(200, b"x" * 2000))]
        journal.begin(known[0].key, "d"), journal.end(known[0].key, known[0].reply)
        if journal.is_long:
            journal.rewrite(known)
            sizes.append((tmp_path / "run-0.jsonl").stat().st_size)
    assert sizes
    assert max(sizes) < 10_000
    journal.rewrite(known)
    (found,) = StateDirectory(tmp_path).remembered_leases()
    assert (found.lease.group, found.container, found.reset, found.step) == ("group", "container", RESET, 1)
    assert remembered_operations(found) == {"run/2999": ("d", b"x" * 2000)}


def test_entries_after_a_torn_line_are_read(journal: LeaseJournal, tmp_path: Path):
    with (tmp_path / "run-0.jsonl").open("ab") as file:
        file.write(b'{"begin": "run/cu')
    journal.begin("run/next", "d")
    (found,) = StateDirectory(tmp_path).remembered_leases()
    assert remembered_operations(found) == {"run/next": ("d", b"")}


def test_a_file_truncated_anywhere_can_be_read(journal: LeaseJournal, tmp_path: Path):
    journal.record_sandbox("container", RESET)
    journal.begin("run/a", "d"), journal.end("run/a", HttpReply(200, OkReply()))
    path = tmp_path / "run-0.jsonl"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at])
        for found in StateDirectory(tmp_path).remembered_leases():
            assert found.container in ("", "container")
            assert remembered_operations(found) in ({}, {"run/a": ("d", b"")}, {"run/a": ("d", b'{"ok":true}')})
        path.write_bytes(whole)


def test_a_closed_lease_leaves_no_file(journal: LeaseJournal, tmp_path: Path):
    journal.begin("run/a", "d")
    journal.remove(), journal.remove()
    assert not list(StateDirectory(tmp_path).remembered_leases())
    journal.end("run/a", HttpReply(200, OkReply()))
    journal.rewrite([KnownOperation("run/a", "d", HttpReply(200, OkReply()))])
    assert not list(tmp_path.iterdir()), "by an operation that outlasted it"


def test_two_servers_cannot_share_a_state_directory(tmp_path: Path):
    with StateDirectory(tmp_path), pytest.raises(UserError, match="--state"), StateDirectory(tmp_path):
        pass
    with StateDirectory(tmp_path):
        pass


def test_a_state_folder_that_cannot_be_written_to_is_one_line_with_the_cause(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with (
        pytest.raises(UserError, match=r"state/here: Not a directory \(`ls -ld \S+/state` shows why\); .*--state"),
        StateDirectory(tmp_path / "state" / "here"),
    ):
        pass
