"""If these fail, a broadcast that was given up hides why, or keeps its connections."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from actors.engines.buckets import Piece
from actors.weights import sender as module
from actors.weights.sender import SenderSettings, WeightSender


async def test_who_gives_a_broadcast_up_that_has_not_met_can_leave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    met = threading.Event()
    monkeypatch.setattr(module, "_join", lambda place: met.wait())
    sender = WeightSender(SenderSettings(address="127.0.0.1", device="cpu"))
    await sender.meet("g", 1)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(sender.send("g", Piece(Path("/x"), "float32", ["a"], [(1,)])))
        await asyncio.sleep(0)
        sending.cancel()
    await sender.leave("g")
    met.set()
