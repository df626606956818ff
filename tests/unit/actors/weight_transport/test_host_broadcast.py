"""If these fail, weights that are broadcast reach some hosts and not others, or one dead host stops all of them."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import torch
from safetensors.torch import save_file

from actors.weight_transport import host_broadcast
from actors.weight_transport.host_broadcast import BroadcastBarrier, HostBroadcastFailed
from actors.weight_transport.host_cache import HostWeightCache, HostWeightCacheSettings
from actors.weight_transport.source import WeightSource
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion


class BroadcastHosts:
    """The learner's, and ``count`` others that all take part in its broadcasts."""

    def __init__(self, root: Path, count: int) -> None:
        self.root, self.source, names = root, WeightSource(count), [f"node-{index}" for index in range(count)]
        self.all = [
            HostWeightCache(
                HostWeightCacheSettings(name=name, run_dir=root / "run", node=name, folder=root / name, broadcast=True),
                self.source,
            )
            for name in names
        ]

    def publish(self, version: int) -> WeightManifest:
        folder = self.root / "weights" / f"v{version}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(f'{{"version": {version}}}')
        (folder / "empty.json").touch()
        file = folder / "model.safetensors"
        save_file({"a": torch.full((5_000,), float(version))}, file)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        return WeightManifest(WeightVersion(version), version, NO_VERSION, str(folder), digest, 1, file.stat().st_size)

    def events(self, host: int, kind: str) -> list[dict[str, object]]:
        lines = (self.root / "run" / "events" / f"node-{host}.jsonl").read_bytes().splitlines()
        return [line for line in map(orjson.loads, lines) if line["kind"] == kind]

    @staticmethod
    def same(copy: WeightManifest, published: WeightManifest) -> bool:
        one, other = (
            {path.name: path.read_bytes() for path in Path(each.path).iterdir()} for each in (copy, published)
        )
        return one == other and copy.path != published.path


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_broadcast, "CHUNK_BYTES", 3_000)


@pytest.mark.usefixtures("small_chunks")
async def test_every_host_has_the_version_after_one_broadcast(tmp_path: Path) -> None:
    hosts = BroadcastHosts(tmp_path, 3)
    for version in (1, 2):
        published = hosts.publish(version)
        copies = await asyncio.gather(*(host.fetch_version(published, NO_VERSION) for host in hosts.all))
        assert all(hosts.same(copy, published) for copy in copies)
    for index in range(3):
        assert [event["version"] for event in hosts.events(index, "weights.copied")] == [1, 2]
        assert not hosts.events(index, "weights.full_fetch")


@pytest.mark.usefixtures("small_chunks")
async def test_a_broadcast_does_not_wait_for_a_removed_host(tmp_path: Path) -> None:
    hosts = BroadcastHosts(tmp_path, 2)
    await hosts.source.set_host_count(1)
    published = hosts.publish(1)
    assert hosts.same(await hosts.all[0].fetch_version(published, NO_VERSION), published)
    assert not hosts.events(0, "weights.full_fetch")


async def test_a_host_fetches_alone_if_its_neighbour_never_joins_the_broadcast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_broadcast, "GATHER_S", 0.01)
    hosts = BroadcastHosts(tmp_path, 2)
    published = hosts.publish(1)
    assert hosts.same(await hosts.all[0].fetch_version(published, NO_VERSION), published)
    assert hosts.same(await hosts.all[1].fetch_version(published, NO_VERSION), published)
    (alone,), (late,) = hosts.events(0, "weights.full_fetch"), hosts.events(1, "weights.full_fetch")
    assert "1 of 2 hosts joined the broadcast of version 0.1" in str(alone["why"])
    assert "before this host joined" in str(late["why"])


async def test_a_version_damaged_in_the_broadcast_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaging(member: host_broadcast.BroadcastMember) -> None:
        folder = tmp_path / "damaged"
        folder.mkdir()
        for file in member.plan.files:
            (folder / file.name).write_bytes(bytes(file.bytes))
        host_broadcast.broadcast_files(replace(member, plan=replace(member.plan, folder=str(folder))))

    monkeypatch.setattr("actors.weight_transport.source.broadcast_files", damaging)
    hosts = BroadcastHosts(tmp_path, 1)
    published = hosts.publish(1)
    assert hosts.same(await hosts.all[0].fetch_version(published, NO_VERSION), published)
    assert "digest" in str(hosts.events(0, "weights.full_fetch")[0]["why"])


async def test_a_sender_that_ends_early_is_an_error_for_its_receivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaving(member: host_broadcast.BroadcastMember) -> None:
        host_broadcast.join_group(member)

    monkeypatch.setattr("actors.weight_transport.source.broadcast_files", leaving)
    hosts = BroadcastHosts(tmp_path, 1)
    published = hosts.publish(1)
    assert hosts.same(await hosts.all[0].fetch_version(published, NO_VERSION), published)
    assert "failed" in str(hosts.events(0, "weights.full_fetch")[0]["why"])


async def test_each_host_of_a_broadcast_has_a_distinct_rank() -> None:
    gathering = BroadcastBarrier(WeightVersion(1), 3, 1)
    assert sorted(await asyncio.gather(*(gathering.wait_for_all() for _ in range(3)))) == [1, 2, 3]
    with pytest.raises(HostBroadcastFailed):
        await gathering.wait_for_all()
