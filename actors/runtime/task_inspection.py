"""Functions that run in an actor's process to inspect it: its pid, its thread stacks, its asyncio tasks.

Ray passes the actor object to each of them as the first argument.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from protocol.processes.stack_dumps import register_stack_dump
from protocol.processes.task_stacks import TaskStack, collect_task_stacks

_CALL_FRAMES: dict[CodeType, Callable[[Mapping[str, Any]], str]] = {}
"""Code of the coroutines that wait for another actor → a description of the call from the frame's locals."""


def register_call_frame(code: CodeType, describe: Callable[[Mapping[str, Any]], str]) -> None:
    """Let :func:`describe_remote_call` recognise frames that run ``code`` as waiting for another actor."""
    _CALL_FRAMES[code] = describe


def describe_remote_call(frame: FrameType) -> str | None:
    """Return ``actor.method`` if ``frame`` waits for a call of another actor, else None."""
    describe = _CALL_FRAMES.get(frame.f_code)
    return describe(frame.f_locals) if describe is not None else None


def report_pid(actor: object) -> int:
    """Return the process id of the actor."""
    del actor
    return os.getpid()


def offer_thread_stacks(actor: object, path: str, name: str) -> None:
    """Let the process write the stacks of its threads to ``path`` on request."""
    del actor
    register_stack_dump(Path(path), name)


def list_own_tasks(actor: object) -> tuple[TaskStack, ...]:
    """Return every asyncio task of the process with its stack.

    Ray runs this in a thread of its own, so the event loops are searched among all Python objects.
    """
    del actor
    loops = [each for each in gc.get_objects() if issubclass(type(each), asyncio.AbstractEventLoop)]
    return collect_task_stacks([task for loop in loops for task in asyncio.all_tasks(loop)], describe_remote_call)
