"""Two network namespaces and a cable between them, for tests that run as root."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


def why_unavailable() -> str | None:
    """Why this machine has none; None where it has."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no ip(8): apt-get install iproute2"
    name = f"lsprobe{secrets.token_hex(3)}"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True, text=True)
    if made.returncode:
        return f"this machine makes no network namespaces: {made.stderr.strip()}"
    _ip("netns", "del", name)
    return None


@dataclass(frozen=True)
class Cable:
    """One end in each namespace, with an address of its own."""

    here: str
    """Namespace of the receiver."""
    there: str
    """Namespace of the senders."""
    address: str
    """The address of the receiver's end."""
    device: str

    def command(self, namespace: str, *command: str) -> list[str]:
        """``command`` as it is started in ``namespace``."""
        return ["ip", "netns", "exec", namespace, *command]

    def disconnect(self) -> None:
        """Nothing passes, and neither end is told."""
        _ip("-n", self.here, "link", "set", self.device, "down")

    def reconnect(self) -> None:
        _ip("-n", self.here, "link", "set", self.device, "up")

    def add_delay(self, *how: str) -> bool:
        """Delay or reorder what the receiver sends (``tc netem``); False where the kernel cannot."""
        return _can("tc", "-n", self.here, "qdisc", "replace", "dev", self.device, "root", "netem", *how)

    def drop_packets(self, share: float) -> bool:
        """Lose so many of the packets that arrive at either end (``iptables``); False where the kernel cannot."""
        rule = ["iptables", "-A", "INPUT", "-m", "statistic", "--mode", "random", "--probability", f"{share}"]
        return all(_can(*self.command(namespace, *rule, "-j", "DROP")) for namespace in (self.here, self.there))


@contextmanager
def cable() -> Iterator[Cable]:
    """A veth pair between two fresh namespaces; all of it is gone afterwards."""
    tag = secrets.token_hex(3)
    here, there = f"lsh{tag}", f"lst{tag}"
    made: list[str] = []
    try:
        for name in (here, there):
            _ip("netns", "add", name)
            made.append(name)
        device, other = f"lsa{tag}", f"lsb{tag}"
        _ip("link", "add", device, "netns", here, "type", "veth", "peer", "name", other, "netns", there)
        for name, end, address in ((here, device, "10.83.7.1/24"), (there, other, "10.83.7.2/24")):
            _ip("-n", name, "address", "add", address, "dev", end)
            _ip("-n", name, "link", "set", end, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield Cable(here, there, "10.83.7.1", device)
    finally:
        for name in made:
            _ip("netns", "del", name)


def _can(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
