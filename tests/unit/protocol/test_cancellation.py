"""If these fail, an image or a container that a cancelled caller asked for stays on the machine."""

from __future__ import annotations

import asyncio

import pytest

from protocol.processes.cancellation import call_to_end, call_with_undo, temporary_resource


class Maker:
    """Makes one thing when it is let."""

    def __init__(self, error: Exception | None = None) -> None:
        self.requested, self.let = asyncio.Event(), asyncio.Event()
        self.there: set[str] = set()
        self._error = error

    async def make(self) -> str:
        self.requested.set()
        await self.let.wait()
        if self._error is not None:
            raise self._error
        self.there.add("it")
        return "it"

    async def undo(self, thing: str) -> None:
        await asyncio.sleep(0)
        self.there.remove(thing)


async def test_a_cancelled_caller_returns_after_the_result_was_made_and_undone():
    maker = Maker()
    async with asyncio.TaskGroup() as group:
        caller = group.create_task(call_with_undo(maker.make, maker.undo))
        await maker.requested.wait()
        caller.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not caller.done()
        maker.let.set()
    assert caller.cancelled()
    assert not maker.there


async def test_a_caller_cancelled_repeatedly_still_waits_for_the_undo():
    maker = Maker()
    async with asyncio.TaskGroup() as group:
        caller = group.create_task(call_with_undo(maker.make, maker.undo))
        await maker.requested.wait()
        for _ in range(5):
            caller.cancel()
            await asyncio.sleep(0)
        assert not caller.done()
        maker.let.set()
        await asyncio.sleep(0)
        caller.cancel()
    assert caller.cancelled()
    assert not maker.there


async def test_a_cancelled_caller_does_not_wait_for_ever():
    maker = Maker()
    async with asyncio.TaskGroup() as group:
        caller = group.create_task(call_with_undo(maker.make, maker.undo, within_s=0.01))
        await maker.requested.wait()
        caller.cancel()
    assert caller.cancelled()


async def test_a_failed_call_is_not_undone():
    maker = Maker(OSError("no"))
    maker.let.set()
    with pytest.raises(OSError, match="no"):
        await call_with_undo(maker.make, maker.undo)
    maker = Maker(OSError("no"))
    async with asyncio.TaskGroup() as group:
        caller = group.create_task(call_with_undo(maker.make, maker.undo))
        await maker.requested.wait()
        caller.cancel()
        maker.let.set()
    assert caller.cancelled()


@pytest.mark.parametrize("ends", ["well", "in an error", "cancelled"])
async def test_a_temporary_resource_exists_only_inside_its_context(ends: str):
    maker = Maker()
    maker.let.set()
    inside = asyncio.Event()

    async def use() -> None:
        async with temporary_resource(maker.make, maker.undo) as thing:
            assert maker.there == {thing}
            inside.set()
            if ends == "in an error":
                raise LookupError
            if ends == "cancelled":
                await asyncio.Event().wait()

    async def through() -> None:
        async with asyncio.TaskGroup() as group:
            using = group.create_task(use())
            await inside.wait()
            if ends == "cancelled":
                using.cancel()

    if ends == "in an error":
        with pytest.raises(ExceptionGroup):
            await through()
    else:
        await through()
    assert not maker.there


async def test_a_resource_is_removed_although_its_removal_is_cancelled():
    maker, removing, go = Maker(), asyncio.Event(), asyncio.Event()
    maker.let.set()

    async def remove(thing: str) -> None:
        removing.set()
        await go.wait()
        await maker.undo(thing)

    async def use() -> None:
        async with temporary_resource(maker.make, remove):
            pass

    async with asyncio.TaskGroup() as group:
        using = group.create_task(use())
        await removing.wait()
        for _ in range(3):
            using.cancel()
            await asyncio.sleep(0)
        assert not using.done()
        go.set()
    assert using.cancelled()
    assert not maker.there


async def test_a_call_to_its_end_raises_its_own_error():
    maker = Maker(OSError("no"))
    maker.let.set()
    with pytest.raises(OSError, match="no"):
        await call_to_end(maker.make)
