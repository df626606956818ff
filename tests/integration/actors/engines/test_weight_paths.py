"""If these fail, a path brings an engine other weights than were published, or leaves it standing still.

One real server takes the same two versions by each path; what it holds is told by its own checksum of the bits in use.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from actors.engines.engine import SGLangEngine
from actors.engines.messages import InvalidWeights, TensorBucketSpec, WeightLoadError
from actors.engines.weights.broadcast_loader import BroadcastWeightLoader
from actors.engines.weights.loader import FileWeightLoader, WeightLoader
from actors.engines.weights.tensor_buckets import plan_buckets
from actors.engines.weights.tensor_loader import TensorWeightLoader
from actors.weight_transport.host_cache import HostWeightCache, HostWeightCacheSettings
from actors.weight_transport.sender import BroadcastError, WeightSender
from actors.weight_transport.source import WeightSource
from actors.weight_transport.version_folders import version_folder
from protocol.weights import NO_VERSION, WeightManifest
from tests.integration.actors.engines import tiny_qwen
from tests.support.actors.engine_requests import make_request
from tests.support.actors.engine_specs import engine_spec

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

_versions = itertools.count(1)
LOADERS = ("files", "tensors", "direct")
WAYS = ("full", "delta", "broadcast")


class Site:
    """A learner's host with versions, and a server."""

    def __init__(self, root: Path) -> None:
        self.root, self.model = root, root / "random"
        tiny_qwen.write_random(self.model)
        self.engine = SGLangEngine(
            engine_spec(
                name="tiny",
                run_dir=root / "run",
                model_path=str(self.model),
                context_length=2048,
                max_total_tokens=20_000,
                max_running=16,
                device="cpu",
                probe_every_s=600.0,
            )
        )
        self.sender = WeightSender("127.0.0.1", "cpu")
        self.parrots: dict[int, Path] = {}
        for token in (tiny_qwen.SAYS_A, tiny_qwen.SAYS_B):
            self.parrots[token] = root / str(token)
            tiny_qwen.write_parrot(self.model, self.parrots[token], token)

    def publish(self, token: int) -> WeightManifest:
        """A version that says this token."""
        version = next(_versions)
        folder = version_folder(self.root / "weights", version)
        shutil.copytree(self.parrots[token], folder)
        return tiny_qwen.manifest(version, folder)

    def make_loader(self, kind: str) -> WeightLoader:
        if kind == "direct":
            return BroadcastWeightLoader("tiny", 1, self.sender)
        return TensorWeightLoader("cpu", 1) if kind == "tensors" else FileWeightLoader()

    async def checksum(self) -> str:
        serving = self.engine.slot.serving
        assert serving is not None
        return await serving.server.client.read_checksum()

    async def says(self) -> tuple[set[int], set[int]]:
        """Tokens, and the versions that sampled them."""
        reply = await self.engine.generate(make_request([5] * 20, 10))
        return set(reply.token_ids), set(reply.versions)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        site = Site(tmp_path_factory.mktemp("site"))
        await site.engine.start(tiny_qwen.manifest(next(_versions), site.model))
        yield site
        await site.engine.stop()


@pytest.fixture
def take(site: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[[WeightLoader], None]:
    """From now on the engine's server gets its weights like this."""
    return lambda loader: monkeypatch.setattr(site.engine.weights, "loader", loader)


@pytest.mark.parametrize("kind", LOADERS)
async def test_loaded_weights_equal_the_published_ones_bit_for_bit(
    site: Site, take: Callable[[WeightLoader], None], kind: str
) -> None:
    await site.engine.load_weights(site.publish(tiny_qwen.SAYS_A), 300)
    expected = await site.checksum()
    take(site.make_loader(kind))
    other = site.publish(tiny_qwen.SAYS_B)
    await site.engine.load_weights(other, 300)
    assert await site.says() == ({tiny_qwen.SAYS_B}, {other.version})
    assert await site.checksum() != expected
    report = await site.engine.load_weights(again := site.publish(tiny_qwen.SAYS_A), 300)
    assert report.version == again.version
    assert await site.says() == ({tiny_qwen.SAYS_A}, {again.version})
    assert await site.checksum() == expected


@pytest.mark.parametrize("way", WAYS)
async def test_transferred_weights_equal_the_published_ones_bit_for_bit(site: Site, tmp_path: Path, way: str) -> None:
    old, new = site.publish(tiny_qwen.SAYS_A), site.publish(tiny_qwen.SAYS_B)
    await site.engine.load_weights(new, 300)
    expected = await site.checksum()
    settings = HostWeightCacheSettings(
        name="copies", run_dir=tmp_path, node="there", folder=tmp_path / "copies", broadcast=way == "broadcast"
    )
    host = HostWeightCache(settings, WeightSource(hosts=1))
    for manifest in (old, again := site.publish(tiny_qwen.SAYS_B)):
        here = manifest if way == "full" else await host.fetch_version(manifest, NO_VERSION)
        await site.engine.load_weights(here, 300)
    assert await site.says() == ({tiny_qwen.SAYS_B}, {again.version})
    assert await site.checksum() == expected


@pytest.mark.parametrize("kind", LOADERS)
async def test_requests_continue_during_loads_and_every_token_is_labelled_with_its_weight_version(
    site: Site, take: Callable[[WeightLoader], None], kind: str
) -> None:
    take(site.make_loader(kind))
    tokens = {(first := site.publish(tiny_qwen.SAYS_A)).version: tiny_qwen.SAYS_A}
    await site.engine.load_weights(first, 300)
    async with asyncio.TaskGroup() as group:
        sampling = [group.create_task(site.engine.generate(make_request([5] * 20, 1500))) for _ in range(4)]
        while (await site.engine.statistics()).running < 4:  # noqa: ASYNC110  # a state of another task, not an event
            await asyncio.sleep(0.01)
        for token in (tiny_qwen.SAYS_B, tiny_qwen.SAYS_A, tiny_qwen.SAYS_B):
            tokens[(manifest := site.publish(token)).version] = token
            await site.engine.load_weights(manifest, 300)
    for reply in (task.result() for task in sampling):
        assert reply.token_ids == [tokens[version] for version in reply.versions]
        assert len(set(reply.versions)) > 1


class FakeWeightSender(WeightSender):
    """Fake: a learner's host that breaks off behind the first piece of each version, as often as it is told to."""

    failures = 0

    async def list_buckets(self, manifest: WeightManifest) -> Sequence[TensorBucketSpec]:
        await super().list_buckets(manifest)
        return plan_buckets(Path(manifest.path), bucket_bytes=50_000)

    async def broadcast_bucket(self, name: str, piece: TensorBucketSpec) -> None:
        if self.failures and "layers.1" in piece.names[0]:
            self.failures -= 1
            raise BroadcastError("the cable was cut")
        await super().broadcast_bucket(name, piece)


async def test_a_broadcast_that_breaks_off_leaves_the_old_weights_and_the_next_one_succeeds(
    site: Site, take: Callable[[WeightLoader], None]
) -> None:
    sender = FakeWeightSender("127.0.0.1", "cpu")
    take(BroadcastWeightLoader("tiny", 1, sender))
    await site.engine.load_weights(good := site.publish(tiny_qwen.SAYS_A), 300)
    before, pid = await site.checksum(), (await site.engine.status()).pid
    sender.failures = 1
    with pytest.raises(WeightLoadError, match="cable"):
        await site.engine.load_weights(site.publish(tiny_qwen.SAYS_B), 300)
    assert await site.says() == ({tiny_qwen.SAYS_A}, {good.version})
    assert await site.checksum() == before
    await site.engine.load_weights(last := site.publish(tiny_qwen.SAYS_B), 300)
    assert await site.says() == ({tiny_qwen.SAYS_B}, {last.version})
    assert (await site.engine.status()).pid == pid


@pytest.mark.parametrize("kind", LOADERS)
async def test_every_loader_refuses_a_damaged_file(site: Site, take: Callable[[WeightLoader], None], kind: str) -> None:
    await site.engine.load_weights(good := site.publish(tiny_qwen.SAYS_A), 300)
    take(site.make_loader(kind))
    damaged = site.publish(tiny_qwen.SAYS_B)
    file = Path(damaged.path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4] + b"\1\2\3\4")
    with pytest.raises(InvalidWeights, match="digest"):
        await site.engine.load_weights(damaged, 300)
    assert await site.says() == ({tiny_qwen.SAYS_A}, {good.version})


async def test_a_load_that_breaks_in_the_pause_leaves_the_old_weights(
    site: Site, take: Callable[[WeightLoader], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_: object) -> None:
        raise RuntimeError("CUDA out of memory")

    await site.engine.load_weights(good := site.publish(tiny_qwen.SAYS_A), 300)
    take(site.make_loader("tensors"))
    with monkeypatch.context() as patch:
        patch.setattr(TensorWeightLoader, "tensors_on_devices", out_of_memory)
        with pytest.raises(WeightLoadError, match="CUDA out of memory"):
            await site.engine.load_weights(site.publish(tiny_qwen.SAYS_B), 300)
    assert await site.says() == ({tiny_qwen.SAYS_A}, {good.version})
    await site.engine.load_weights(last := site.publish(tiny_qwen.SAYS_B), 300)
    assert await site.says() == ({tiny_qwen.SAYS_B}, {last.version})
