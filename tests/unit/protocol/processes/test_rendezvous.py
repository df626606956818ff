"""If these fail, the store of a process group, which asks nobody for a key, is open to the whole network."""

from __future__ import annotations

import subprocess
import sys

import pytest

from protocol.processes.loopback import is_loopback
from tests.support.processes import listening_at

_MEET = """
import sys, torch.distributed as dist
from protocol.processes.loopback import find_free_port
from protocol.processes.rendezvous import restrict_tcp_stores_to_address

restrict_tcp_stores_to_address()
restrict_tcp_stores_to_address()
kind, port = sys.argv[1], find_free_port()
if kind == "store":
    store = dist.TCPStore("127.0.0.1", port, 1, True)
elif kind == "any port":
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    port = store.port
else:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
print(port, flush=True)
sys.stdin.read()
"""


@pytest.mark.first_case
@pytest.mark.parametrize("kind", ["store", "any port", "group"])
def test_a_store_listens_only_on_its_address(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with subprocess.Popen(
        [sys.executable, "-c", _MEET, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        listening = listening_at(process.pid)
        process.communicate()
    assert port in {at for _, at in listening}
    assert all(is_loopback(address) for address, _ in listening)
