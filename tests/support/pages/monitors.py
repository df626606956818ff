"""The live monitor as a process of its own, for tests that ask it by HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Monitor:
    url: str
    """Without a slash at its end."""
    address: str
    """The address as the monitor printed it."""
    process: subprocess.Popen[str]


@contextmanager
def start_monitor(run_dir: Path, *options: str, env: Mapping[str, str] | None = None) -> Iterator[Monitor]:
    command = [sys.executable, "-m", "launch.monitor", str(run_dir), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}) as process:
        try:
            assert process.stdout
            address = process.stdout.readline().strip()
            yield Monitor(address.partition("?")[0].rstrip("/"), address, process)
        finally:
            process.kill()
