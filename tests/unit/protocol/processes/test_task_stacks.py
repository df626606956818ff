"""If these fail, a person whose run hung is shown tasks, and not what they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import asynccontextmanager
from types import FrameType

from protocol.processes.task_stacks import TaskStack, collect_task_stacks


class HangingDepot:
    """Never gives what it is asked for."""

    async def fetch(self) -> None:
        await self.open_for_ever()

    async def open_for_ever(self) -> None:
        await asyncio.Event().wait()

    @asynccontextmanager
    async def reserved(self) -> AsyncGenerator[None]:
        await self.fetch()
        yield


def depot_of(frame: FrameType) -> str | None:
    return "depot" if isinstance(frame.f_locals.get("self"), HangingDepot) else None


async def stack_of(work: Coroutine[object, object, None]) -> TaskStack:
    """Return the stack of a task that hangs in ``work``."""
    task = asyncio.get_running_loop().create_task(work, name="sender")
    for _ in range(5):
        await asyncio.sleep(0)
    try:
        (found,) = collect_task_stacks([task], depot_of)
        return found
    finally:
        task.cancel()


async def test_a_hanging_task_shows_its_await_chain_and_the_component_it_waits_for() -> None:
    async def sender() -> None:
        await HangingDepot().fetch()

    found = await stack_of(sender())
    own = [frame.rpartition(" ")[2] for frame in found.frames if not frame.startswith("/")]
    assert own[-2:] == ["HangingDepot.fetch", "HangingDepot.open_for_ever"]
    assert found.frames[0].startswith("tests/unit/protocol/processes/test_task_stacks.py:")
    assert found.frames[-1].endswith("Event.wait")
    assert (found.name, found.waits_for) == ("sender", "depot")
    assert found.innermost_frame.endswith("HangingDepot.open_for_ever"), (
        "the innermost of ours says more than the library's"
    )


async def test_await_chains_through_context_managers_and_generators_are_followed() -> None:
    async def sender() -> None:
        async with HangingDepot().reserved():
            pass

    found = await stack_of(sender())
    assert found.waits_for in {"depot", ""}
    assert any("sender" in frame for frame in found.frames)


class FramelessCoroutine(Coroutine[object, object, None]):
    """An awaitable as Cython makes it: not a Python coroutine and without a frame."""

    def __init__(self, inner: Coroutine[object, object, None]) -> None:
        self.cr_frame, self.cr_await = None, inner.__await__()

    def send(self, value: object) -> object:
        return self.cr_await.send(value)

    def throw(self, *error: object) -> object:
        return self.cr_await.throw(*error)

    def __await__(self) -> Generator[object, object, None]:
        yield from self.cr_await


async def test_the_await_chain_of_a_frameless_coroutine_is_shown() -> None:
    """Otherwise no task of Ray's actors would show a stack."""
    found = await stack_of(FramelessCoroutine(HangingDepot().fetch()))
    assert found.waits_for == "depot"
    assert found.frames[0].endswith("HangingDepot.fetch")


async def test_a_task_that_waits_for_a_task_group_names_the_groups_tasks() -> None:
    async def sender() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0), name="quick")
            group.create_task(HangingDepot().fetch(), name="slow")

    assert (await stack_of(sender())).group == ("slow",)


async def test_a_finished_task_is_not_listed() -> None:
    task = asyncio.get_running_loop().create_task(asyncio.sleep(0))
    await task
    assert collect_task_stacks([task], depot_of) == ()


async def test_tasks_are_sorted_by_name() -> None:
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(HangingDepot().fetch(), name=f"sender-{number}") for number in (2, 0, 1)]
    await asyncio.sleep(0)
    assert [stack.name for stack in collect_task_stacks(tasks, depot_of)] == ["sender-0", "sender-1", "sender-2"]
    for task in tasks:
        task.cancel()
