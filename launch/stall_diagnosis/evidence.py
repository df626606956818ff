"""Gathers the asyncio tasks, the thread stacks and the kernel state of every process of a run.

A process that does not answer within :data:`PATIENCE_S` is part of the evidence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from actors.runtime.remote import Remote, short_actor_name
from actors.runtime.remote_errors import RemoteError
from actors.runtime.task_inspection import describe_remote_call
from launch.processes.process_reaper import find_run_processes
from launch.stall_diagnosis.foreign_stacks import read_foreign_stacks
from launch.stall_diagnosis.wait_chain import DRIVER, ProcessState, StallEvidence
from protocol.processes.stack_dumps import PROCESS_ENDED, read_dumping_pid, request_stack_dumps
from protocol.processes.task_stacks import TaskStack, collect_task_stacks

PATIENCE_S = 5.0
_MAX_COMMAND_CHARS = 80


async def gather_evidence(actors: Sequence[Remote[Any]], stacks: Sequence[Path], token: str) -> StallEvidence:
    """``stacks`` are the files into which processes dump their stacks; ``token`` marks every process of the run."""
    tasks: dict[str, Sequence[TaskStack]] = {DRIVER: collect_task_stacks(asyncio.all_tasks(), describe_remote_call)}
    silent: dict[str, str] = {}
    async with asyncio.TaskGroup() as group:
        for actor in actors:
            group.create_task(_ask(actor, tasks, silent))
    found = await asyncio.to_thread(_process_states, token)
    before = {path: _size(path) for path in stacks}
    failures = await request_stack_dumps(stacks, wake=False)
    missing = {name: why for name, why in failures.items() if why != PROCESS_ENDED}
    dumps = {path: text for path, offset in before.items() if (text := _text(path, offset))}
    answered = {read_dumping_pid(path) for path in dumps}
    commands = {process.pid: process.command for process in found if process.pid not in answered}
    foreign = await asyncio.to_thread(read_foreign_stacks, commands)
    others = {f"process {pid} ({commands[pid]})": text for pid, text in foreign.items()}
    return StallEvidence(tasks, silent, found, {path.stem: text for path, text in dumps.items()} | missing | others)


async def _ask(actor: Remote[Any], tasks: dict[str, Sequence[TaskStack]], silent: dict[str, str]) -> None:
    name = short_actor_name(actor.name)
    try:
        async with asyncio.timeout(PATIENCE_S):
            tasks[name] = await actor.list_tasks()
    except TimeoutError:
        silent[name] = f"no answer within {PATIENCE_S:g} s"
    except RemoteError as error:
        silent[name] = error.why


def _process_states(token: str) -> list[ProcessState]:
    found = [_process_state(pid) for pid, _ in sorted(find_run_processes(token))]
    return [state for state in found if state is not None]


def _process_state(pid: int) -> ProcessState | None:
    """Return the state of a process; None if it has ended."""
    folder = Path(f"/proc/{pid}")
    try:
        state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return None
    waits_in = ""
    with suppress(OSError):
        waits_in = (folder / "wchan").read_text().strip("0")
    return ProcessState(pid, state, waits_in, _short(command))


def _short(command: str) -> str:
    """Return the module or program of a command, without folders."""
    words = command.split()
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    return " ".join(Path(word).name if word.startswith("/") else word for word in words)[:_MAX_COMMAND_CHARS]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _text(path: Path, offset: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace")
    except OSError:
        return ""
