"""If these fail, a run goes on without one of its services, or hides what ended it."""

from __future__ import annotations

import asyncio

import pytest

from launch.processes.background_tasks import background_services
from protocol.errors import InfraError


async def forever(ended: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(name)


async def fails(error: Exception) -> None:
    await asyncio.sleep(0)
    raise error


async def test_services_run_while_the_body_runs_and_no_longer() -> None:
    ended: list[str] = []
    async with background_services(forever(ended, "a"), forever(ended, "b")):
        await asyncio.sleep(0)
        assert ended == []
    assert sorted(ended) == ["a", "b"]


async def test_a_service_that_fails_ends_the_body_and_the_others_with_its_own_error() -> None:
    ended: list[str] = []
    with pytest.raises(InfraError, match="the disk is gone"):
        async with background_services(fails(InfraError("the disk is gone")), forever(ended, "other")):
            await forever(ended, "body")
    assert sorted(ended) == ["body", "other"]


async def test_a_service_that_ends_leaves_the_body_alone() -> None:
    async with background_services(asyncio.sleep(0)):
        for _ in range(5):
            await asyncio.sleep(0)


async def test_the_error_of_the_body_is_raised_without_a_group_and_keeps_its_cause() -> None:
    ended: list[str] = []
    cause = ValueError("remote traceback")

    async def body() -> None:
        async with background_services(forever(ended, "service")):
            await asyncio.sleep(0)
            raise InfraError("what happened") from cause

    with pytest.raises(InfraError) as caught:
        await body()
    assert caught.value.__cause__ is cause
    assert ended == ["service"]


async def test_an_error_in_a_nested_group_is_raised_without_the_group() -> None:
    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails(InfraError("inner")))

    with pytest.raises(InfraError, match="inner"):
        async with background_services(group()):
            await asyncio.Event().wait()


async def test_cancelling_the_body_ends_the_services_and_stays_a_cancellation() -> None:
    ended: list[str] = []

    async def body() -> None:
        async with background_services(forever(ended, "service")):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(body())
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["service"]
