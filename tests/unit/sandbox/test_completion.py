"""A container, a network or an image stays behind when its maker is cancelled and these fail."""

from __future__ import annotations

import asyncio

import pytest

from protocol.errors import InfraError
from sandbox.completion import completed


class FakeDaemon:
    """Makes one thing, when it is told to go on, and takes it back."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self.there: list[str] = []
        self.error = error

    async def make(self) -> str:
        self.asked.set()
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        self.there.append("made")
        return "made"

    async def remove(self, name: str) -> None:
        self.there.remove(name)
        raise InfraError("and then the daemon went away")


async def test_what_is_made_is_the_callers():
    daemon = FakeDaemon()
    daemon.go_on.set()
    assert await completed(daemon.make, daemon.remove) == "made"
    assert daemon.there == ["made"]


async def test_an_error_leaves_as_it_is():
    daemon = FakeDaemon(InfraError("no room"))
    daemon.go_on.set()
    with pytest.raises(InfraError, match="no room"):
        await completed(daemon.make, daemon.remove)


@pytest.mark.parametrize("error", [None, InfraError("no room")], ids=["made", "failed"])
async def test_a_cancelled_call_is_seen_to_its_end_and_taken_back(error: Exception | None):
    daemon = FakeDaemon(error)
    async with asyncio.TaskGroup() as group:
        calling = group.create_task(completed(daemon.make, daemon.remove))
        await daemon.asked.wait()
        calling.cancel()
        await asyncio.sleep(0)
        assert not calling.done(), "it left the daemon at work"
        daemon.go_on.set()
    assert calling.cancelled()
    assert daemon.there == []


async def test_a_deadline_is_still_a_deadline():
    daemon = FakeDaemon()

    async def too_late() -> None:
        async with asyncio.timeout(0):
            asyncio.get_running_loop().call_soon(daemon.go_on.set)
            await completed(daemon.make, daemon.remove)

    with pytest.raises(TimeoutError):
        await too_late()
    assert daemon.there == []
