"""Writes the report of a stall: the wait chain, then processes, tasks and the stacks of threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from launch.stall_diagnosis.wait_chain import StallEvidence
from protocol.files.filesystem import replace_file


def write_stall_report(folder: Path, line: str, evidence: StallEvidence) -> Path:
    """Write a new file into ``folder`` and return its path.  Raises OSError."""
    number = 1 + len(list(folder.glob("hang-*.txt")))
    path = folder / f"hang-{number}.txt"
    replace_file(path, ("\n".join(_lines(line, evidence)) + "\n").encode())
    return path


def _lines(line: str, evidence: StallEvidence) -> Iterator[str]:
    yield line
    yield from _headed("processes: pid, state, kernel function in which it sleeps, command")
    for process in evidence.processes:
        yield f"{process.pid:>8} {process.state} {process.kernel_function or '-':<24} {process.command}"
    yield from _headed("asyncio tasks: frames, innermost last")
    for name, why in evidence.silent.items():
        yield f"{name}: {why}"
    for name, tasks in evidence.tasks.items():
        for task in tasks:
            yield f"{name}: {task.name}" + (f", waits for {task.waits_for}" if task.waits_for else "")
            yield from (f"    {frame}" for frame in task.frames)
    yield from _headed("thread stacks, innermost first")
    for name, text in evidence.stacks.items():
        yield f"-- {name}"
        yield text.rstrip()


def _headed(text: str) -> Iterator[str]:
    yield ""
    yield f"== {text}"
