"""Agents lose their sandboxes, or a command runs twice, when a pool server is killed and this fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import UserError
from sandbox.leases import Lease
from sandbox.server.journal import LeaseJournal, StateDirectory
from sandbox.server.messages import Done, Reply

LEASE = Lease("run-0", "task", 5.0, "request", "group")
RESET = {"task_meta": {"task_name": "é\n"}}


@pytest.fixture
def journal(tmp_path: Path) -> LeaseJournal:
    written = StateDirectory(tmp_path).journal(LEASE.id)
    written.opened(LEASE)
    return written


def test_a_lease_comes_back_with_its_container_and_what_was_answered(journal: LeaseJournal, tmp_path: Path):
    journal.sandbox("old", {})
    journal.sandbox("container", RESET)
    journal.begin("run/a"), journal.end("run/a", Reply(200, Done()))
    journal.begin("run/#1"), journal.end("run/#1", None)
    journal.begin("exec_tool/b")
    (found,) = StateDirectory(tmp_path).remembered()
    assert (found.lease.id, found.lease.task_key, found.lease.request_id, found.lease.group) == (
        "run-0", "task", "request", "group",
    )  # fmt: skip
    assert (found.container, found.reset, found.under_way) == ("container", RESET, {"exec_tool/b"})
    assert {key: reply.body for key, reply in found.replies.items()} == {"run/a": b'{"ok":true}'}


def test_every_cut_of_the_file_can_be_read(journal: LeaseJournal, tmp_path: Path):
    journal.sandbox("container", RESET)
    journal.begin("run/a"), journal.end("run/a", Reply(200, Done()))
    path = tmp_path / "run-0.jsonl"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at])
        for found in StateDirectory(tmp_path).remembered():
            assert found.container in ("", "container")
            assert not (found.replies and "run/a" in found.under_way)
        path.write_bytes(whole)


def test_a_closed_lease_leaves_no_file(journal: LeaseJournal, tmp_path: Path):
    journal.remove(), journal.remove()
    assert not list(StateDirectory(tmp_path).remembered())


def test_two_servers_cannot_share_a_state_directory(tmp_path: Path):
    with StateDirectory(tmp_path), pytest.raises(UserError, match="--state"), StateDirectory(tmp_path):
        pass
    with StateDirectory(tmp_path):
        pass
