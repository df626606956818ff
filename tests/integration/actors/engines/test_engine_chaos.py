"""If these fail, what goes wrong with an engine costs a request, or leaves an engine paused or on weights nobody knows.

Two real servers behind a worker's router always have requests under way.  Each version of the weights says a token of
its own, so a reply shows what sampled it.  One harm is done at a time; then every request has been answered, each token
bears the version that said it, and each engine serves, by its server's own checksum, the weights that it says it does.

What else can harm a version before an engine hears of it is in
``tests/unit/actors/weight_transport/test_host_cache.py`` and ``test_weight_paths.py``.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from actors.engines.engine import SGLangEngine
from actors.engines.messages import (
    EngineState,
    GenerateReply,
    GenerateRequest,
    InvalidWeights,
    OnPartialReply,
    WeightLoadError,
)
from actors.engines.routing.router import Router
from actors.engines.settings import EngineSpec
from actors.engines.weights import weight_files
from actors.weight_transport.host_cache import HostWeightCache, HostWeightCacheSettings, WeightCopyError
from actors.weight_transport.source import WeightSource
from actors.weight_transport.transfer_plan import PlannedFile, TransferPlan
from actors.weight_transport.version_folders import version_folder
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.integration.actors.engines import tiny_qwen
from tests.support.actors.engine_requests import make_request
from tests.support.actors.engine_specs import engine_spec
from tests.support.processes import process_group

pytestmark = [pytest.mark.sglang, pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module")]

_REPLY_TOKENS, _AT_ONCE = 300, 6
_LOAD_S = 300.0


@dataclass(frozen=True, slots=True)
class Here:
    """An engine of this process, as a router sees engines."""

    name: str
    engine: SGLangEngine

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        return await self.engine.generate(request, watch)


class EnginePair:
    def __init__(self, root: Path) -> None:
        self._root, self._versions, self._sessions = root, itertools.count(1), itertools.count()
        self.model = root / "random"
        tiny_qwen.write_random(self.model)
        self._parrots: dict[int, Path] = {}
        for token in (tiny_qwen.SAYS_A, tiny_qwen.SAYS_B):
            self._parrots[token] = root / str(token)
            tiny_qwen.write_parrot(self.model, self._parrots[token], token)
        self.said_by: dict[WeightVersion, int] = {}
        """Version → its token."""
        self._checksums: dict[int, str] = {}
        """Token → what a server says that holds those weights."""
        self.engines = [SGLangEngine(self._settings(f"tiny-{number}")) for number in range(2)]
        self._router = Router([Here(f"tiny-{number}", each) for number, each in enumerate(self.engines)])

    def _settings(self, name: str) -> EngineSpec:
        return engine_spec(
            name=name,
            run_dir=self._root / "run",
            model_path=str(self.model),
            context_length=2048,
            max_total_tokens=20_000,
            max_running=16,
            device="cpu",
            probe_every_s=2.0,
            stall_timeout_s=20.0,
        )

    def publish(self, token: int, *, step: int | None = None) -> WeightManifest:
        """A version in a folder of its own that says this token."""
        number = next(self._versions)
        folder = version_folder(self._root / "weights", number)
        shutil.copytree(self._parrots[token], folder)
        manifest = tiny_qwen.manifest(number, folder)
        self.said_by[manifest.version] = token
        if step is None:
            return manifest
        return WeightManifest(
            manifest.version, step, manifest.parent, manifest.path, manifest.sha256, manifest.tensors, manifest.bytes
        )

    async def push(self, manifest: WeightManifest) -> None:
        """To one engine after the other, again and again until it has them, as a run does."""
        for engine in self.engines:
            while (await engine.status()).version != manifest.version:
                with suppress(WeightLoadError):
                    await engine.load_weights(manifest, _LOAD_S)

    @asynccontextmanager
    async def under_load(self) -> AsyncGenerator[None]:
        """So many requests are always under way meanwhile; after it each has been answered, and truly labelled."""
        over, replies = asyncio.Event(), list[GenerateReply]()

        async def ask() -> None:
            while not over.is_set():
                seed = next(self._sessions)
                ids = [3 + seed % 90, *[5] * 19]
                replies.append(await self._router.generate(make_request(ids, _REPLY_TOKENS, session=f"s{seed}")))

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(ask())
            await self._both_decode()
            yield
            over.set()
        assert len(replies) >= _AT_ONCE
        for reply in replies:
            assert len(reply.token_ids) == _REPLY_TOKENS
            assert [self.said_by[WeightVersion(version)] for version in reply.versions] == reply.token_ids

    async def _both_decode(self) -> None:
        for engine in self.engines:
            while not (await engine.statistics()).running:  # noqa: ASYNC110  # a state of other tasks, not an event
                await asyncio.sleep(0.01)

    async def assert_sound(self, *allowed: WeightManifest) -> None:
        """Each engine decodes, on one of these versions, and its server holds that one's weights."""
        for engine in self.engines:
            reply = await engine.generate(make_request([7] * 20, 5))
            status = await engine.status()
            assert status.state is EngineState.SERVING
            assert status.version in {manifest.version for manifest in allowed}
            assert set(reply.versions) == {status.version}
            token = self.said_by[status.version]
            assert set(reply.token_ids) == {token}
            checksum = await self.checksum(engine)
            assert self._checksums.setdefault(token, checksum) == checksum
        assert len(set(self._checksums.values())) == len(self._checksums)

    @staticmethod
    async def checksum(engine: SGLangEngine) -> str:
        serving = engine.slot.serving
        assert serving is not None
        return await serving.server.client.read_checksum()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EnginePair]:
    pair = EnginePair(await asyncio.to_thread(tmp_path_factory.mktemp, "pair"))
    first = pair.publish(tiny_qwen.SAYS_A)
    try:
        async with asyncio.TaskGroup() as group:
            for engine in pair.engines:
                group.create_task(engine.start(first))
        yield pair
    finally:
        for engine in pair.engines:
            await engine.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def pair(started: EnginePair) -> EnginePair:
    """Each test begins on token A."""
    before = started.publish(tiny_qwen.SAYS_A)
    await started.push(before)
    await started.assert_sound(before)
    return started


async def until_replaced(engine: SGLangEngine, restarts: int) -> None:
    while (await engine.statistics()).restarts == restarts:  # noqa: ASYNC110  # a state of another task
        await asyncio.sleep(0.05)


async def test_a_server_is_killed_while_new_weights_come(pair: EnginePair) -> None:
    new, hit = pair.publish(tiny_qwen.SAYS_B), pair.engines[0]
    restarts = (await hit.statistics()).restarts
    async with pair.under_load():
        async with asyncio.TaskGroup() as group:
            group.create_task(pair.push(new))
            os.kill((await hit.status()).pid, signal.SIGKILL)
        await until_replaced(hit, restarts)
    await pair.assert_sound(new)


async def test_a_server_stops_and_says_nothing(pair: EnginePair) -> None:
    """Longer than it may be silent: it is replaced, and its requests go on elsewhere."""
    new, hit = pair.publish(tiny_qwen.SAYS_B), pair.engines[1]
    restarts, gone = (await hit.statistics()).restarts, (await hit.status()).pid
    async with pair.under_load():
        for pid in process_group(gone):
            os.kill(pid, signal.SIGSTOP)
        await until_replaced(hit, restarts)
        await pair.push(new)
    assert process_group(gone) == set()
    await pair.assert_sound(new)


async def test_a_push_cancelled_during_the_pause_leaves_no_engine_paused(pair: EnginePair) -> None:
    new, hit = pair.publish(tiny_qwen.SAYS_B), pair.engines[0]
    async with pair.under_load():
        async with asyncio.TaskGroup() as group:
            pushing = group.create_task(hit.load_weights(new, _LOAD_S))
            while (await hit.status()).state is not EngineState.UPDATING:  # noqa: ASYNC110  # a state of another task
                await asyncio.sleep(0)
            pushing.cancel()
        await pair.engines[1].load_weights(new, _LOAD_S)
    await pair.assert_sound(new)


async def test_two_learners_push_at_the_same_time(pair: EnginePair) -> None:
    """Each engine is on one of both, whole."""
    mine, theirs = pair.publish(tiny_qwen.SAYS_B), pair.publish(tiny_qwen.SAYS_A)
    async with pair.under_load(), asyncio.TaskGroup() as group:
        for engine, (first, second) in zip(pair.engines, [(mine, theirs), (theirs, mine)], strict=True):
            group.create_task(engine.load_weights(first, _LOAD_S))
            group.create_task(engine.load_weights(second, _LOAD_S))
    await pair.assert_sound(mine, theirs)


async def test_a_version_is_skipped_and_a_resume_rolls_the_step_back(pair: EnginePair) -> None:
    skipped, last = pair.publish(tiny_qwen.SAYS_A), pair.publish(tiny_qwen.SAYS_B)
    back = pair.publish(tiny_qwen.SAYS_A, step=0)
    async with pair.under_load():
        await pair.push(last)
        await pair.push(back)
    assert skipped.version < last.version < back.version
    await pair.assert_sound(back)


@pytest.mark.parametrize("known", [True, False], ids=["known before", "found by the server"])
async def test_a_version_cannot_be_loaded(pair: EnginePair, monkeypatch: pytest.MonkeyPatch, *, known: bool) -> None:
    old, bad, good = (pair.publish(token) for token in (tiny_qwen.SAYS_A, tiny_qwen.SAYS_B, tiny_qwen.SAYS_B))
    await pair.push(old)
    (Path(bad.path) / "model.safetensors").unlink()
    async with pair.under_load():
        with monkeypatch.context() as patch:
            if not known:
                patch.setattr(weight_files, "check_weights", lambda manifest, model: None)
            for engine in pair.engines:
                with pytest.raises(InvalidWeights if known else WeightLoadError):
                    await engine.load_weights(bad, _LOAD_S)
    await pair.assert_sound(old)
    await pair.push(good)
    await pair.assert_sound(good)


class DamagingNetwork(WeightSource):
    """Fake: the learner's host itself, behind a network that damages as many blocks as it is told to."""

    damages = 0

    async def read_delta_block(self, plan: TransferPlan, file: PlannedFile, index: int) -> bytes:
        block = bytearray(await super().read_delta_block(plan, file, index))
        if self.damages:
            self.damages -= 1
            block[-1] ^= 1
        return bytes(block)


async def test_a_delta_is_damaged_on_its_way(pair: EnginePair, tmp_path: Path) -> None:
    """The version comes whole then, and to both engines."""
    old, new = pair.publish(tiny_qwen.SAYS_A), pair.publish(tiny_qwen.SAYS_B)
    network = DamagingNetwork()
    copies = HostWeightCache(
        HostWeightCacheSettings(name="c", run_dir=tmp_path, node="n", folder=tmp_path / "copies"), network
    )
    await pair.push(await copies.fetch_version(old, NO_VERSION))
    async with pair.under_load():
        network.damages = 1
        await pair.push(await copies.fetch_version(new, old.version))
    assert network.damages == 0
    assert "weights.full_fetch" in (tmp_path / "events" / "c.jsonl").read_text()
    await pair.assert_sound(new)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a tmpfs")
async def test_the_memory_for_copies_is_full(pair: EnginePair, tmp_path: Path) -> None:
    """The engines go on with what they have, and take the next version once there is room."""
    old, new = pair.publish(tiny_qwen.SAYS_A), pair.publish(tiny_qwen.SAYS_B)
    room = old.bytes + (256 << 10)
    (folder := tmp_path / "copies").mkdir()
    await mount("-t", "tmpfs", "-o", f"size={room}", "tmpfs", folder)
    try:
        copies = HostWeightCache(
            HostWeightCacheSettings(name="c", run_dir=tmp_path, node="n", folder=folder), WeightSource()
        )
        await pair.push(await copies.fetch_version(old, NO_VERSION))
        async with pair.under_load():
            with pytest.raises(WeightCopyError, match="No space left"):
                await copies.fetch_version(new, old.version)
            await pair.assert_sound(old)
            await mount("-o", f"remount,size={4 * room}", folder)
            await pair.push(await copies.fetch_version(new, old.version))
        await pair.assert_sound(new)
    finally:
        await asyncio.to_thread(subprocess.run, ["umount", "--lazy", str(folder)], check=True)


async def mount(*words: object) -> None:
    await asyncio.to_thread(subprocess.run, ["mount", *map(str, words)], check=True)


async def test_engines_recover_from_several_faults_at_once(pair: EnginePair) -> None:
    """A server dies while its weights are exchanged, the other one's weight sync manager stops, and another version
    comes."""
    first, second = pair.publish(tiny_qwen.SAYS_B), pair.publish(tiny_qwen.SAYS_A)
    hit, other = pair.engines
    restarts = (await hit.statistics()).restarts
    async with pair.under_load():
        async with asyncio.TaskGroup() as group:
            loading, leaving = (
                group.create_task(_tried(hit, first)),
                group.create_task(other.load_weights(first, _LOAD_S)),
            )
            while (await hit.status()).state is not EngineState.UPDATING:  # noqa: ASYNC110  # a state of another task
                await asyncio.sleep(0)
            os.kill((await hit.status()).pid, signal.SIGKILL)
            leaving.cancel()
        assert loading.done()
        await until_replaced(hit, restarts)
        await pair.push(second)
    await pair.assert_sound(second)


async def _tried(engine: SGLangEngine, manifest: WeightManifest) -> None:
    with suppress(WeightLoadError):
        await engine.load_weights(manifest, _LOAD_S)
