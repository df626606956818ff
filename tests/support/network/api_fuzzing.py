"""Requests that are generated from an OpenAPI document, valid and invalid ones, and the checks of their replies."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

T = TypeVar("T")

_CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


@contextmanager
def serve_in_thread(server: AbstractAsyncContextManager[T]) -> Generator[T]:
    """Run a server in a thread of its own, because generated requests block, and yield what it yields."""
    ready, stop = threading.Event(), asyncio.Event()
    found: list[T] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        async with server as value:
            found.append(value)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield found[0]
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(60)


def check_operations(
    document: schemathesis.BaseSchema,
    mode: GenerationMode,
    examples: int,
    change: Callable[[schemathesis.Case], None] = lambda case: None,
) -> int:
    """Send ``examples`` generated requests to each operation, each after ``change``.

    Return the number of operations, without those of which no request is invalid if ``mode`` asks for such.  Raises
    unless every reply has a documented status and a documented body, and none is a 5xx."""
    checked = 0
    for operation in (found.ok() for found in document.get_all_operations()):

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def check(case: schemathesis.Case) -> None:
            change(case)
            case.call_and_validate(checks=_CHECKS)

        try:
            check()
        except Unsatisfiable:
            if mode is GenerationMode.POSITIVE:
                raise
        else:
            checked += 1
    return checked
