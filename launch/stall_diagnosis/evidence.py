"""Asks every process of a run where it is: its asyncio tasks, the stacks of its threads, its state in the kernel.

Nobody is waited for longer than :data:`PATIENCE_S`: who does not answer is part of the evidence.
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
from launch.stall_diagnosis.wait_chain import DRIVER, ProcessState, StallEvidence
from protocol.processes.stack_dumps import PROCESS_ENDED, request_stack_dumps
from protocol.processes.task_stacks import TaskStack, collect_task_stacks

PATIENCE_S = 5.0
_MOST_COMMAND = 80


async def gather_evidence(actors: Sequence[Remote[Any]], stacks: Sequence[Path], token: str) -> StallEvidence:
    """``stacks``: where processes offer theirs; ``token``: what every process of the run carries."""
    tasks: dict[str, Sequence[TaskStack]] = {DRIVER: collect_task_stacks(asyncio.all_tasks(), describe_remote_call)}
    silent: dict[str, str] = {}
    async with asyncio.TaskGroup() as group:
        for actor in actors:
            group.create_task(_ask(actor, tasks, silent))
    found = await asyncio.to_thread(_process_states, token)
    before = {path: _size(path) for path in stacks}
    untold = {
        name: why for name, why in (await request_stack_dumps(stacks, wake=False)).items() if why != PROCESS_ENDED
    }
    told = {path.stem: _text(path, offset) for path, offset in before.items()}
    return StallEvidence(tasks, silent, found, {name: text for name, text in told.items() if text} | untold)


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
    """None for one that has ended."""
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
    """The module or program, without where it lies."""
    words = command.split()
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    return " ".join(Path(word).name if word.startswith("/") else word for word in words)[:_MOST_COMMAND]


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
