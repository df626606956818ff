"""If these fail, a process group's store, which asks nobody for a key, is open to the whole network, or any account of
the machine ends a learner or an engine by connections to its groups."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from protocol.processes.rendezvous import accept_nobody
from tests.support.processes import listening_at

_MEET = """
import sys, torch, torch.distributed as dist
from protocol.processes.loopback import find_free_port
from protocol.processes.rendezvous import guard_process_groups

guard_process_groups()
guard_process_groups()
kind, port = sys.argv[1], find_free_port()
if kind == "store":
    store = dist.TCPStore("127.0.0.1", port, 1, True)
elif kind == "any port":
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    port = store.port
else:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    group, sums = dist.new_group(backend="gloo"), torch.ones(2)
    dist.all_reduce(sums, group=group)
print(port, flush=True)
sys.stdin.read()
"""


@contextmanager
def met(kind: str, monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[int, set[tuple[str, int]]]]:
    """Yield the port at which a process wanted to meet others, and where it listens."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with subprocess.Popen(
        [sys.executable, "-c", _MEET, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield port, listening_at(process.pid)
        process.communicate()


def is_connected(address: tuple[str, int]) -> bool:
    """Connect, and return whether it was possible within a moment."""
    with socket.socket() as stranger:
        stranger.settimeout(0.2)
        return stranger.connect_ex(address) == 0


@pytest.mark.first_case
@pytest.mark.parametrize("kind", ["store", "any port"])
def test_a_store_listens_only_on_its_address(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with met(kind, monkeypatch) as (port, listening):
        assert {("127.0.0.1", port)} == listening
        assert is_connected(("127.0.0.1", port))


def test_a_group_of_one_rank_accepts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with met("group", monkeypatch) as (port, listening):
        assert len(listening) == 2
        assert port not in {at for _, at in listening}
        assert not any(map(is_connected, listening))


def test_only_later_connections_are_dropped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as before:
        accept_nobody(listener)
        assert not is_connected(listener.getsockname())
        with listener.accept()[0] as accepted:
            before.sendall(b"here")
            assert accepted.recv(4) == b"here"
