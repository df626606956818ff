"""The file that a hang leaves: the line first, then processes, tasks, and the stacks of threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from launch.stall_diagnosis.wait_chain import StallEvidence
from protocol.files.filesystem import replace_file


def write_stall_report(folder: Path, line: str, evidence: StallEvidence) -> Path:
    """A new file in ``folder``.  Raises OSError."""
    number = 1 + len(list(folder.glob("hang-*.txt")))
    path = folder / f"hang-{number}.txt"
    replace_file(path, ("\n".join(_lines(line, evidence)) + "\n").encode())
    return path


def _lines(line: str, evidence: StallEvidence) -> Iterator[str]:
    yield line
    yield from _headed("processes: pid, state, what the kernel says that it sleeps in, command")
    for process in evidence.processes:
        yield f"{process.pid:>8} {process.state} {process.kernel_function or '-':<24} {process.command}"
    yield from _headed("asyncio tasks: what each awaits, the innermost last")
    for name, why in evidence.silent.items():
        yield f"{name}: {why}"
    for name, tasks in evidence.tasks.items():
        for task in tasks:
            yield f"{name}: {task.name}" + (f", waits for {task.waits_for}" if task.waits_for else "")
            yield from (f"    {frame}" for frame in task.frames)
    yield from _headed("stacks of threads, the innermost first")
    for name, text in evidence.stacks.items():
        yield f"-- {name}"
        yield text.rstrip()


def _headed(text: str) -> Iterator[str]:
    yield ""
    yield f"== {text}"
