"""Reads what a process holds, and which part of the run it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from launch.bench.soak.growth import Figure

RAY = "Ray"
"""Parts whose names begin so are Ray's own."""
MUST_LAST = frozenset(
    {
        *("driver", "worker", "buffer", "scheduler", "learner", "engine actor", "engine server", "engine scheduler"),
        *("engine detokenizer", "monitor", "pool server", "router", "environment service"),
    }
)
"""Parts whose processes live as long as the soak."""
_ACTOR = re.compile(r"ray::(\w+)")
_ACTOR_PARTS: Mapping[str, str] = {
    "RolloutWorker": "worker",
    "TrajectoryBuffer": "buffer",
    "RolloutScheduler": "scheduler",
    "LearnerRank": "learner",
    "SGLangEngine": "engine actor",
}
_MODULE_PARTS: Mapping[str, str] = {
    "launch.bench.soak.driver": "driver",
    "launch.monitor": "monitor",
    "launch.exporters": "exporters",
    "launch.environment": "environment service",
    "sandbox.server": "pool server",
    "sandbox.router": "router",
    "actors.engines.server.entrypoint": "engine server",
}
_SCRIPT_PARTS: Mapping[str, str] = {
    "launch/processes/process_reaper.py": "process reaper",
    "actors/engines/server/process_reaper.py": "engine reaper",
}
_NAME_CHARS = 60


class ProcessStat(NamedTuple):
    """The fields of ``/proc/PID/stat`` that are of use."""

    parent: int
    threads: int
    started: int
    """Clock ticks since boot."""


def read_stat(pid: int) -> ProcessStat:
    """Raises OSError if the process is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return ProcessStat(int(fields[1]), int(fields[17]), int(fields[19]))


def read_memory(pid: int) -> Mapping[str, int]:
    """Return the sums of a process's mappings in bytes, by their names in ``/proc/PID/smaps_rollup``.

    Raises OSError if the process is gone.
    """
    _, *lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return {name: int(size.split()[0]) * 1024 for name, _, size in (line.partition(":") for line in lines)}


def read_figures(pid: int, children: int) -> Mapping[Figure, float]:
    """Return the figures of a process.  Raises OSError if it is gone."""
    stat = read_stat(pid)
    memory = read_memory(pid)
    return {
        Figure.RESIDENT: memory["Rss"],
        Figure.ANONYMOUS: memory["Anonymous"] + memory["Swap"],
        Figure.PROPORTIONAL: memory["Pss"],
        Figure.DESCRIPTORS: len([*Path(f"/proc/{pid}/fd").iterdir()]),
        Figure.THREADS: stat.threads,
        Figure.CHILDREN: children,
    }


def name_part(words: Sequence[str]) -> str:
    """Return the part of a run that a command line belongs to, or else its program's name."""
    first = words[0] if words else ""
    if actor := _ACTOR.match(first):
        return _ACTOR_PARTS.get(actor[1], f"{RAY}: {actor[1]}")
    if first.startswith("sglang::"):
        return "engine " + first.removeprefix("sglang::").split("_")[0]
    for word in words[1:]:  # a reaper's command line ends with that of its server
        for script, part in _SCRIPT_PARTS.items():
            if word.endswith(script):
                return part
    for flag, module in pairwise(words):
        if flag == "-m" and module in _MODULE_PARTS:
            return _MODULE_PARTS[module]
    for word in words[:4]:
        if "/site-packages/ray/" in word:
            path = Path(word)
            return f"{RAY}: {path.parent.name}/{path.name}" if path.suffix else f"{RAY}: {path.name}"
    return " ".join([Path(first).name, *words[1:3]])[:_NAME_CHARS]


def read_part(pid: int) -> str:
    """Return the part that a process belongs to.  Raises OSError if it is gone."""
    line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return name_part(line.rstrip("\0 ").split("\0"))
