"""If these fail, an engine on another host serves weights that nobody published, or each of them pulls its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import pytest
import torch

from actors.engines.weights.weight_files import check_digest
from actors.weight_transport import host_cache, source, transfer_plan
from actors.weight_transport.host_cache import HostWeightCache, HostWeightCacheSettings, WeightCopyError
from actors.weight_transport.source import WeightSource
from actors.weight_transport.transfer_plan import PlannedFile, TransferPlan
from learner.checkpoint.published_weights import WeightVersionInfo, write_weights_folder
from learner.models.hf_folder import NamedWeight
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion

SIZES = {"a": 2 * 60_000, "b": 2 * 7}


class CountingNetwork(WeightSource):
    """Fake: the learner's host itself, behind a network that counts, and damages what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: list[TransferPlan] = []
        self.blocks = 0
        self.damages = 0
        self.forgets: Path | None = None
        """A folder that the learner's host removes after it has planned with it."""

    async def plan_transfer(self, manifest: WeightManifest, held: Sequence[WeightVersion]) -> TransferPlan:
        self.plans.append(await super().plan_transfer(manifest, held))
        if self.forgets is not None:
            shutil.rmtree(self.forgets, ignore_errors=True)
        return self.plans[-1]

    async def read_delta_block(self, plan: TransferPlan, file: PlannedFile, index: int) -> bytes:
        block = bytearray(await super().read_delta_block(plan, file, index))
        self.blocks += 1
        if self.damages:
            self.damages -= 1
            block[-1] ^= 1
        return bytes(block)


class CacheHosts:
    """The learner's, where versions are published, and another one with its copies."""

    def __init__(self, root: Path) -> None:
        self.root, self.learner, self.copied = root, root / "weights", root / "copies"
        self.model = root / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text("{}")
        self.network, self.shard_bytes = CountingNetwork(), 100_000
        self.weights = torch.randn(60_000, generator=torch.Generator().manual_seed(0)).bfloat16()
        self.host = HostWeightCache(
            HostWeightCacheSettings(name="copies", run_dir=root / "run", node="node-1", folder=self.copied),
            self.network,
        )

    def publish(self, version: int) -> WeightManifest:
        """A tenth of the weights moves a little."""
        self.weights[version % 10 :: 10] += 2**-7
        weights = [NamedWeight("a", self.weights), NamedWeight("b", torch.full((7,), version, dtype=torch.bfloat16))]
        named = WeightVersionInfo(WeightVersion(version), version, NO_VERSION)
        folder = self.learner / f"v{version}"
        return write_weights_folder(
            weights,
            SIZES,
            self.model,
            folder,
            dtype=torch.bfloat16,
            named=named,
            shard_bytes=self.shard_bytes,
        )

    def check(self, copy: WeightManifest) -> None:
        """It is what was published, file by file and bit by bit."""
        here, there = self.copied / f"v{copy.version}", self.learner / f"v{copy.version}"
        assert Path(copy.path) == here
        assert {path.name: path.read_bytes() for path in here.iterdir()} == {
            path.name: path.read_bytes() for path in there.iterdir()
        }
        check_digest(copy)

    def events(self, kind: str) -> list[dict[str, object]]:
        lines = (self.root / "run" / "events" / "copies.jsonl").read_bytes().splitlines()
        return [line for line in map(orjson.loads, lines) if line["kind"] == kind]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def damage(folder: Path) -> None:
    """A byte of a weight flips."""
    file = next(folder.glob("*.safetensors"))
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CacheHosts:
    monkeypatch.setattr(transfer_plan, "BLOCK_BYTES", 10_000)
    monkeypatch.setattr(source, "BLOCK_BYTES", 10_000)
    monkeypatch.setattr(host_cache, "BLOCK_BYTES", 10_000)
    return CacheHosts(tmp_path)


async def test_only_changes_are_sent_and_the_copy_is_bitwise_equal(hosts: CacheHosts) -> None:
    hosts.check(await hosts.host.fetch_version(hosts.publish(1), NO_VERSION))
    hosts.check(await hosts.host.fetch_version(hosts.publish(2), WeightVersion(1)))
    first, second = hosts.events("weights.copied")
    assert (first["base"], second["base"]) == (NO_VERSION, 1)
    assert second["share"] < first["share"] / 3
    assert not hosts.events("weights.full_fetch")


async def test_a_host_fetches_once_for_all_of_its_engines(hosts: CacheHosts) -> None:
    manifest = hosts.publish(1)
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(hosts.host.fetch_version(manifest, NO_VERSION))
    assert len(hosts.network.plans) == 1


async def test_a_version_pinned_for_one_engine_stays_while_others_move_on(hosts: CacheHosts) -> None:
    """Its server reads it when it starts, which takes longer than steps, and again where it dies."""
    published = hosts.publish(1)
    await hosts.host.fetch_version(published, NO_VERSION)
    kept = await hosts.host.fetch_version(published, NO_VERSION, pinned=True)
    assert len(hosts.network.plans) == 1, "it came twice"
    for version in (2, 3, 4):
        await hosts.host.fetch_version(hosts.publish(version), WeightVersion(version - 1))
    assert not (hosts.copied / "v1").exists()
    check_digest(kept)
    later = await hosts.host.fetch_version(hosts.publish(5), NO_VERSION, pinned=True)
    check_digest(later)
    assert [folder.name for folder in (hosts.copied / "pinned").iterdir()] == ["v5"], "nobody reads v1 any more"
    assert not hosts.events("weights.full_fetch")


async def test_a_pinned_fetch_does_not_delay_other_fetches(hosts: CacheHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, requested, go_on = hosts.publish(1), hosts.publish(2), asyncio.Event(), asyncio.Event()
    plan = hosts.network.plan_transfer

    async def late(manifest: WeightManifest, held: Sequence[WeightVersion]) -> TransferPlan:
        if manifest == first:
            requested.set()
            await go_on.wait()
        return await plan(manifest, held)

    monkeypatch.setattr(hosts.network, "plan_transfer", late)
    async with asyncio.TaskGroup() as group:
        alone = group.create_task(hosts.host.fetch_version(first, NO_VERSION, pinned=True))
        await requested.wait()
        hosts.check(await hosts.host.fetch_version(second, NO_VERSION))
        go_on.set()
    check_digest(alone.result())
    await hosts.host.fetch_version(first, NO_VERSION, pinned=True, refetch=True)
    assert len(hosts.network.plans) == 3, "a copy that was refused is trusted"


async def test_the_base_model_is_copied_to_a_host_without_access_to_it(hosts: CacheHosts) -> None:
    """Its tokenizer, and the shapes that every version must have, are read on each host."""
    published = Path(hosts.publish(1).path)
    (published / "tokenizer.json").write_text("{}" * 20_000)
    model = Path(await hosts.host.fetch_model(str(published)))
    assert contents(model) == contents(published)
    sent = hosts.network.blocks
    assert await hosts.host.fetch_model(str(published)) == str(model)
    assert hosts.network.blocks == sent
    hosts.check(await hosts.host.fetch_version(hosts.publish(2), NO_VERSION))
    assert contents(model)


async def test_the_judges_folder_is_copied_beside_the_base_model(hosts: CacheHosts) -> None:
    model, judge = (Path(hosts.publish(number).path) for number in (1, 2))
    copies = [await hosts.host.fetch_model(str(model)), await hosts.host.fetch_model(str(judge), "judge")]
    assert [contents(Path(copy)) for copy in copies] == [contents(model), contents(judge)]
    assert contents(model) != contents(judge)


async def test_a_model_damaged_in_transfer_is_not_stored(hosts: CacheHosts) -> None:
    published = hosts.publish(1)
    hosts.network.damages = 1
    with pytest.raises(WeightCopyError, match="arrived damaged"):
        await hosts.host.fetch_model(published.path)
    assert [path.name for path in hosts.copied.iterdir()] == []


async def test_a_version_that_this_host_never_saw_is_skipped(hosts: CacheHosts) -> None:
    await hosts.host.fetch_version(hosts.publish(1), NO_VERSION)
    hosts.publish(2)
    hosts.check(await hosts.host.fetch_version(hosts.publish(3), WeightVersion(1)))
    assert hosts.network.plans[-1].base == 1


async def test_without_a_common_base_the_whole_version_is_sent_and_reported(hosts: CacheHosts) -> None:
    await hosts.host.fetch_version(hosts.publish(1), NO_VERSION)
    shutil.rmtree(hosts.learner / "v1")
    hosts.check(await hosts.host.fetch_version(hosts.publish(2), WeightVersion(1)))
    (event,) = hosts.events("weights.full_fetch")
    assert event["why"] == "the learner's host no longer has any of 0.1"


async def test_a_base_removed_from_the_learners_host_causes_a_full_fetch(hosts: CacheHosts) -> None:
    await hosts.host.fetch_version(hosts.publish(1), NO_VERSION)
    hosts.network.forgets = hosts.learner / "v1"
    hosts.check(await hosts.host.fetch_version(hosts.publish(2), WeightVersion(1)))
    assert len(hosts.events("weights.full_fetch")) == 1


async def test_a_damaged_copy_is_not_used_as_a_base(hosts: CacheHosts) -> None:
    """Otherwise the damage would be carried into every later version."""
    await hosts.host.fetch_version(hosts.publish(1), NO_VERSION)
    damage(hosts.copied / "v1")
    hosts.check(await hosts.host.fetch_version(hosts.publish(2), WeightVersion(1)))
    assert "another base" in str(hosts.events("weights.full_fetch")[0]["why"])


async def test_a_delta_damaged_in_transfer_is_detected_and_the_whole_version_sent(hosts: CacheHosts) -> None:
    await hosts.host.fetch_version(hosts.publish(1), NO_VERSION)
    hosts.network.damages = 1
    hosts.check(await hosts.host.fetch_version(hosts.publish(2), WeightVersion(1)))
    assert "checksum" in str(hosts.events("weights.full_fetch")[0]["why"])
    assert [plan.base for plan in hosts.network.plans] == [NO_VERSION, 1, NO_VERSION]


async def test_a_version_split_into_other_files_than_its_base_is_copied_correctly(hosts: CacheHosts) -> None:
    await hosts.host.fetch_version(hosts.publish(1), NO_VERSION)
    hosts.shard_bytes = 1_000_000
    hosts.check(await hosts.host.fetch_version(hosts.publish(2), WeightVersion(1)))
    assert not hosts.events("weights.full_fetch")


async def test_an_incompletely_copied_version_leaves_no_files(hosts: CacheHosts) -> None:
    await hosts.host.fetch_version(hosts.publish(1), NO_VERSION)
    hosts.network.damages = 1_000
    with pytest.raises(WeightCopyError, match="arrived damaged"):
        await hosts.host.fetch_version(hosts.publish(2), WeightVersion(1))
    assert [path.name for path in hosts.copied.iterdir()] == ["v1"]


async def test_files_that_differ_from_the_manifest_are_not_stored(hosts: CacheHosts) -> None:
    manifest = hosts.publish(1)
    damage(hosts.learner / "v1")
    with pytest.raises(WeightCopyError, match="has digest"):
        await hosts.host.fetch_version(manifest, NO_VERSION)
    assert not list(hosts.copied.iterdir())


async def test_a_copy_that_an_engine_refused_is_fetched_again(hosts: CacheHosts) -> None:
    await hosts.host.fetch_version(manifest := hosts.publish(1), NO_VERSION)
    damage(hosts.copied / "v1")
    hosts.check(await hosts.host.fetch_version(manifest, NO_VERSION, refetch=True))


@pytest.fixture
def small_disk(hosts: CacheHosts) -> Iterator[CacheHosts]:
    """Copies are on a tmpfs with room for one version."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(hosts.copied)], check=True)
    yield hosts
    subprocess.run(["umount", "--lazy", str(hosts.copied)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a tmpfs")
async def test_a_full_disk_fails_one_version_and_keeps_the_served_copy(small_disk: CacheHosts) -> None:
    hosts = small_disk
    hosts.check(await hosts.host.fetch_version(hosts.publish(1), NO_VERSION))
    new = hosts.publish(2)
    with pytest.raises(WeightCopyError, match=r"cannot be stored.*No space left"):
        await hosts.host.fetch_version(new, WeightVersion(1))
    assert [path.name for path in hosts.copied.iterdir()] == ["v1"]
    remount = ["mount", "-o", "remount,size=400k", str(hosts.copied)]
    await asyncio.to_thread(subprocess.run, remount, check=True)
    hosts.check(await hosts.host.fetch_version(new, WeightVersion(1)))


async def test_copies_are_removed_when_every_engine_serves_a_later_version(hosts: CacheHosts) -> None:
    for version, served in ((1, NO_VERSION), (2, WeightVersion(1)), (3, WeightVersion(1)), (4, WeightVersion(3))):
        await hosts.host.fetch_version(hosts.publish(version), served)
    assert sorted(path.name for path in hosts.copied.iterdir()) == ["v3", "v4"]
