"""If these fail, a broadcast that was given up hides why, or keeps its connections."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from actors.engines.messages import InvalidWeights, TensorBucketSpec
from actors.weight_transport import sender as module
from actors.weight_transport.sender import WeightSender
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion


async def test_a_version_without_its_folder_is_refused_by_name(tmp_path: Path) -> None:
    sender = WeightSender("127.0.0.1", "cpu")
    gone = WeightManifest(WeightVersion(3), 3, NO_VERSION, str(tmp_path / "v3"), "", 0, 0)
    with pytest.raises(InvalidWeights, match="v3"):
        await sender.list_buckets(gone)


async def test_a_cancelled_broadcast_with_an_incomplete_group_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    met = threading.Event()
    monkeypatch.setattr(module, "join_process_group", lambda place: met.wait())
    sender = WeightSender("127.0.0.1", "cpu")
    await sender.open_group("g", 1)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(
            sender.broadcast_bucket("g", TensorBucketSpec(Path("/x"), "float32", ["a"], [(1,)]))
        )
        await asyncio.sleep(0)
        sending.cancel()
    await sender.close_group("g")
    met.set()
