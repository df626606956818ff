"""If these fail, a step sees half of a change, a paused run goes on, or who asked waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from launch.control.step_hooks import StepHooks, StopReason
from protocol.errors import UserError


class Loop:
    """Takes steps until it is ended, and notes what was done before each."""

    def __init__(self) -> None:
        self.hooks, self.done = StepHooks(), list[str]()

    async def run(self, steps: int = 3) -> None:
        try:
            for step in range(steps):
                await self.hooks.run_pending()
                if self.hooks.requested_stop is not None:
                    return
                self.done.append(f"step {step}")
                await asyncio.sleep(0)
        finally:
            self.hooks.close()

    async def note(self) -> int:
        self.done.append("asked")
        return len(self.done)


async def test_a_requested_action_runs_between_two_steps_and_returns_its_result() -> None:
    loop = Loop()
    async with asyncio.TaskGroup() as group:
        pending = group.create_task(loop.hooks.run_between_steps(loop.note))
        await asyncio.sleep(0)
        group.create_task(loop.run(1))
    assert loop.done == ["asked", "step 0"]
    assert pending.result() == 1


async def test_a_paused_loop_runs_requested_actions_and_takes_no_step_until_it_is_resumed() -> None:
    loop = Loop()
    loop.hooks.pause()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(loop.run(1))
        assert await loop.hooks.run_between_steps(loop.note) == 1
        assert await loop.hooks.run_between_steps(loop.note) == 2
        assert loop.done == ["asked", "asked"]
        loop.hooks.resume()
    assert loop.done == ["asked", "asked", "step 0"]


async def test_a_paused_loop_can_be_ended() -> None:
    loop = Loop()
    loop.hooks.pause()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(loop.run())
        await loop.hooks.run_between_steps(loop.note)
        loop.hooks.request_stop(StopReason.STOPPED_BY_REQUEST)
    assert loop.done == ["asked"]


async def test_a_user_error_of_an_action_reaches_its_caller_and_not_the_loop() -> None:
    loop = Loop()

    async def refuse() -> None:
        raise UserError("no")

    async with asyncio.TaskGroup() as group:
        pending = group.create_task(_error_of(loop.hooks.run_between_steps(refuse)))
        await asyncio.sleep(0)
        group.create_task(loop.run(1))
    assert loop.done == ["step 0"]
    assert str(pending.result()) == "no"


async def test_a_failure_of_an_action_ends_the_loop_too() -> None:
    loop = Loop()

    async def fail() -> None:
        raise ZeroDivisionError

    async with asyncio.TaskGroup() as group:
        pending = group.create_task(_error_of(loop.hooks.run_between_steps(fail)))
        await asyncio.sleep(0)
        run = group.create_task(_error_of(loop.run()))
    assert isinstance(pending.result(), ZeroDivisionError)
    assert isinstance(run.result(), ZeroDivisionError)


async def test_an_action_that_is_requested_after_the_last_step_is_refused() -> None:
    loop = Loop()
    async with asyncio.TaskGroup() as group:
        group.create_task(loop.run(1))
        await asyncio.sleep(0)
        late = group.create_task(_error_of(loop.hooks.run_between_steps(loop.note)))
    assert "training has ended" in str(late.result())
    with pytest.raises(UserError, match="training has ended"):
        await loop.hooks.run_between_steps(loop.note)
    assert loop.done == ["step 0"]


async def test_an_action_is_skipped_if_its_caller_was_cancelled() -> None:
    loop = Loop()
    loop.hooks.pause()
    pending = asyncio.get_running_loop().create_task(loop.hooks.run_between_steps(loop.note))
    await asyncio.sleep(0)
    pending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending
    loop.hooks.resume()
    await loop.run(1)
    assert loop.done == ["step 0"]


async def _error_of(work: Awaitable[object]) -> Exception | None:
    try:
        await work
    except Exception as error:  # noqa: BLE001  # what is looked for
        return error
    return None
