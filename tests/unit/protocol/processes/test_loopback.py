"""Ports that are found for somebody who listens later."""

import errno
import socket
from pathlib import Path

import pytest

from protocol.processes import loopback


@pytest.fixture
def ephemeral_ports(tmp_path, monkeypatch):
    """A function that sets the range of the kernel's ephemeral ports."""
    path = tmp_path / "range"
    monkeypatch.setattr(loopback, "_EPHEMERAL_PORTS", path)
    return lambda first, last: path.write_text(f"{first}\t{last}\n")


def test_the_kernel_gives_a_found_port_to_nobody_who_asks_for_any():
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not any(first <= loopback.find_free_port() <= last for _ in range(50))


def test_held_ports_are_passed_over(monkeypatch, ephemeral_ports):
    ephemeral_ports(32768, 60999)
    held, free = loopback.find_free_port(), loopback.find_free_port()
    with socket.create_server(("127.0.0.1", held)):
        monkeypatch.setattr(loopback, "_PORTS", (held, free, 40_000))
        assert {loopback.find_free_port() for _ in range(20)} == {free}
        monkeypatch.setattr(loopback, "_PORTS", (held,))
        with pytest.raises(OSError, match="is held") as caught:
            loopback.find_free_port()
    assert caught.value.errno == errno.EADDRINUSE


def test_an_ephemeral_port_is_found_where_all_are_ephemeral(ephemeral_ports):
    ephemeral_ports(1024, 65535)
    assert 1024 <= loopback.find_free_port() <= 65535
