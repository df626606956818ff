"""One real SGLang server whose versions are adapters: whose words it says under which label, and what it has loaded."""

import asyncio
import itertools
import os
import random
import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import pytest_asyncio
from safetensors.torch import load_file, save_file

from actors.engines.engine import SGLangEngine
from actors.engines.messages import EngineState, GenerateReply, InvalidWeights, WeightLoadError
from actors.engines.weights import adapter_files
from protocol.weights import WeightManifest
from tests.integration.actors.engines import tiny_adapters, tiny_qwen
from tests.support.actors.engine_requests import make_request
from tests.support.actors.engine_specs import engine_spec

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

WORDS = 40
_versions = itertools.count(1)


MAX_ADAPTERS = 3


class Talkers:
    """Adapters on the disk, each with a word of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.base = root, root / "base"
        tiny_qwen.write_random(root / "random")
        tiny_adapters.write_listener(root / "random", self.base, WORDS)
        self._words = itertools.cycle(range(WORDS))
        self.said_by: dict[int, int] = {}
        """Token → the last version that says it."""

    def publish(self) -> WeightManifest:
        version, word = next(_versions), next(self._words)
        folder = self.root / f"v{version}"
        tiny_adapters.write_talker(self.base, folder, word)
        self.said_by[tiny_adapters.FIRST_WORD + word] = version
        return tiny_adapters.manifest(version, folder)

    def check(self, reply: GenerateReply) -> None:
        assert [self.said_by.get(token) for token in reply.token_ids] == reply.versions
        assert not reply.mixed_prefix


@pytest.fixture(scope="module")
def talkers(tmp_path_factory: pytest.TempPathFactory) -> Talkers:
    return Talkers(tmp_path_factory.mktemp("models"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(talkers: Talkers, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SGLangEngine]:
    engine = SGLangEngine(
        engine_spec(
            name="tiny",
            run_dir=tmp_path_factory.mktemp("run"),
            model_path=str(talkers.base),
            context_length=2048,
            max_total_tokens=30_000,
            max_running=16,
            device="cpu",
            node="here",
            probe_every_s=2.0,
            stall_timeout_s=20.0,
            max_adapters=MAX_ADAPTERS,
            lora=tiny_adapters.LORA,
        )
    )
    await engine.start(talkers.publish())
    yield engine
    await engine.stop()


def prompt(seed: int, length: int = 20) -> list[int]:
    return random.Random(seed).choices(range(3, tiny_qwen.VOCABULARY), k=length)


async def loaded(engine: SGLangEngine) -> set[str]:
    """By the server's own list."""
    return set(await engine.slot.serving.server.client.list_adapters())


async def running(engine: SGLangEngine, group: asyncio.TaskGroup, name: str) -> asyncio.Task[GenerateReply]:
    """A long request of which something has come."""
    task = group.create_task(engine.generate(make_request(prompt(len(name)), 1500, name=name)))
    while not len((await engine.partial_replies({name: 0})).get(name, ())):  # noqa: ASYNC110  # another task's state
        await asyncio.sleep(0.01)
    return task


async def test_replies_are_labelled_with_the_adapter_that_sampled_them_while_versions_change(
    engine: SGLangEngine, talkers: Talkers
) -> None:
    """Nothing pauses for them, a reply is of one version from its first token to its last, and what nobody uses any
    more is unloaded."""
    replies: list[GenerateReply] = []
    updates, clients, more, ended, most = 20, 10, asyncio.Event(), asyncio.Event(), 0

    async def converse(client: int) -> None:
        dice, history = random.Random(client), prompt(client)
        while not ended.is_set():
            reply = await engine.generate(make_request(history, dice.randint(4, 60), session=str(client)))
            talkers.check(reply)
            assert set(reply.versions) == {reply.key_version}
            history = [*history, *reply.token_ids][-1500:]
            replies.append(reply)
            more.set()

    async with asyncio.TaskGroup() as group:
        for client in range(clients):
            group.create_task(converse(client))
        for _ in range(updates):
            published = talkers.publish()
            report = await engine.load_weights(published, 300)
            assert (report.version, report.pause_ms) == (published.version, 0.0)
            most = max(most, len(await loaded(engine)))
            while all(reply.key_version != published.version for reply in replies):
                more.clear()
                await more.wait()
        ended.set()
    assert most <= MAX_ADAPTERS
    (events,) = (engine.slot.spec.run_dir / "events").glob("*.jsonl")
    loads = [line for line in map(orjson.loads, events.read_bytes().splitlines()) if line["kind"] == "engine.loaded"]
    assert [line["pause_ms"] for line in loads[-updates:]] == [0.0] * updates


async def test_log_probabilities_are_those_of_merged_weights(
    engine: SGLangEngine, talkers: Talkers, tmp_path: Path
) -> None:
    for seed, temperature in ((1, 1.0), (2, 0.7)):
        adapter, merged = tmp_path / f"adapter-{seed}", tmp_path / f"merged-{seed}"
        tiny_adapters.write_random(talkers.base, adapter, seed)
        tiny_adapters.write_merged(talkers.base, adapter, merged)
        await engine.load_weights(tiny_adapters.manifest(next(_versions), adapter), 300)
        reply = await engine.generate(make_request(prompt(seed, 40), 200, temperature=temperature))
        expected, without = (
            tiny_qwen.reference_logprobs(folder, prompt(seed, 40), reply.token_ids, temperature)
            for folder in (merged, talkers.base)
        )
        assert reply.logprobs == pytest.approx(expected, abs=1e-5)
        assert max(abs(one - other) for one, other in zip(expected, without, strict=True)) > 0.1


async def test_a_request_finishes_on_the_adapter_it_began_with_and_that_adapter_is_then_unloaded(
    engine: SGLangEngine, talkers: Talkers
) -> None:
    old, new = talkers.publish(), talkers.publish()
    await engine.load_weights(old, 300)
    async with asyncio.TaskGroup() as group:
        long = await running(engine, group, "long")
        await engine.load_weights(new, 300)
        short = await engine.generate(make_request(prompt(3), 20))
        assert not long.done(), "the old adapter has no user any more, which proves nothing"
        assert {f"v{old.version}", f"v{new.version}"} <= await loaded(engine)
    for reply, published in ((long.result(), old), (short, new)):
        talkers.check(reply)
        assert set(reply.versions) == {published.version}
    async with asyncio.timeout(60):
        while await loaded(engine) != {f"v{new.version}"}:  # noqa: ASYNC110  # the server's state
            await asyncio.sleep(0.01)


async def test_a_push_waits_for_a_free_adapter_slot_and_a_cancelled_request_frees_one(
    engine: SGLangEngine, talkers: Talkers
) -> None:
    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[GenerateReply]] = []
        for number in range(MAX_ADAPTERS):
            await engine.load_weights(talkers.publish(), 300)
            tasks.append(await running(engine, group, f"task {number}"))
        with pytest.raises(WeightLoadError, match=r"within 0\.1 s|no answer in time"):  # whichever is first
            await engine.load_weights(talkers.publish(), 0.1)
        assert len(await loaded(engine)) == MAX_ADAPTERS
        newest = talkers.publish()
        push = group.create_task(engine.load_weights(newest, 300))
        tasks[0].cancel()
        assert (await push).version == newest.version
        assert len(await loaded(engine)) <= MAX_ADAPTERS
    for task in tasks[1:]:
        talkers.check(task.result())
        assert len(task.result().token_ids) == 1500


def damage(kind: str, folder: Path) -> None:
    file, config = folder / "adapter_model.safetensors", folder / adapter_files.ADAPTER_CONFIG_FILE
    if kind == "cut off":
        file.write_bytes(file.read_bytes()[:-100])
    elif kind == "noise":
        file.write_bytes(b"\xff" * file.stat().st_size)
    elif kind == "no configuration":
        config.unlink()
    elif kind == "another scale":
        config.write_text(config.read_text().replace("8.0", "16.0"))
    else:
        matrices = load_file(file)
        del matrices["base_model.model.model.layers.1.self_attn.o_proj.lora_B.weight"]
        save_file(matrices, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    "kind", ["cut off", "noise", "no configuration", "another scale", "a matrix less", "another rank", "another digest"]
)
async def test_a_bad_adapter_folder_is_refused_and_the_previous_adapter_keeps_serving(
    engine: SGLangEngine, talkers: Talkers, tmp_path: Path, kind: str
) -> None:
    good, bad = talkers.publish(), tmp_path / "bad"
    await engine.load_weights(good, 300)
    pid = (await engine.status()).pid
    tiny_adapters.write_random(
        talkers.base, bad, 3, tiny_adapters.LORA._replace(rank=2 if kind == "another rank" else 4)
    )
    if kind == "another digest":
        manifest = replace(tiny_adapters.manifest(next(_versions), bad), sha256=good.sha256)
    else:
        if kind != "another rank":
            damage(kind, bad)
        manifest = tiny_adapters.manifest(next(_versions), bad)
    with pytest.raises(InvalidWeights):
        await engine.load_weights(manifest, 300)
    await serves(engine, talkers, good)
    assert (await engine.status()).pid == pid


async def serves(engine: SGLangEngine, talkers: Talkers, manifest: WeightManifest) -> None:
    reply = await engine.generate(make_request(prompt(4), 20))
    talkers.check(reply)
    assert set(reply.versions) == {manifest.version}
    assert (await engine.status()).version == manifest.version


@pytest.mark.parametrize("kind", ["a rank above the server's", "no file"])
async def test_a_refused_adapter_changes_nothing_and_its_version_can_be_pushed_again(
    engine: SGLangEngine, talkers: Talkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    good, bad, pid = talkers.publish(), tmp_path / "bad", (await engine.status()).pid
    await engine.load_weights(good, 300)
    tiny_adapters.write_random(talkers.base, bad, 3, tiny_adapters.LORA._replace(rank=64))
    refused = tiny_adapters.manifest(next(_versions), bad)
    if kind == "no file":
        (bad / "adapter_model.safetensors").unlink()
    with monkeypatch.context() as unchecked:
        unchecked.setattr(adapter_files, "check_adapter", lambda manifest, model, lora: None)
        with pytest.raises(WeightLoadError):
            await engine.load_weights(refused, 300)
    await serves(engine, talkers, good)
    assert await loaded(engine) == {f"v{good.version}"}
    shutil.rmtree(bad)
    tiny_adapters.write_random(talkers.base, bad, 3)
    await engine.load_weights(tiny_adapters.manifest(refused.version, bad), 300)
    assert (await engine.status()).version == refused.version
    assert (await engine.status()).pid == pid


@pytest.mark.chaos
async def test_a_server_that_comes_back_has_the_newest_adapter_before_any_request(
    engine: SGLangEngine, talkers: Talkers
) -> None:
    """A reply begun under another adapter goes on under the new one, each token labelled with its own version."""
    old, new = talkers.publish(), talkers.publish()
    await engine.load_weights(old, 300)
    restarts, pid = (await engine.statistics()).restarts, (await engine.status()).pid
    async with asyncio.TaskGroup() as group:
        task = await running(engine, group, "cut")
        await engine.load_weights(new, 300)
        os.kill(pid, signal.SIGKILL)
        late = group.create_task(engine.generate(make_request(prompt(5), 20)))
    reply, statistics = task.result(), await engine.statistics()
    talkers.check(reply)
    talkers.check(late.result())
    assert (reply.versions[0], reply.versions[-1], reply.server_switches) == (old.version, new.version, 1)
    assert set(late.result().versions) == {new.version}
    assert statistics.restarts == restarts + 1
    assert ((await engine.status()).state, await loaded(engine)) == (EngineState.SERVING, {f"v{new.version}"})
    assert (await engine.status()).pid != pid
