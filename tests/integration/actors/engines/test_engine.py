"""One real SGLang server on the CPU, shared by the module: what it answers, how it takes weights, how it dies."""

import asyncio
import contextlib
import itertools
import os
import random
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from actors.engines.engine import SGLangEngine
from actors.engines.messages import (
    EngineState,
    EngineUnavailable,
    GenerateReply,
    InvalidWeights,
    RequestRefused,
    WeightLoadError,
)
from actors.engines.routing.prefix_cache import PrefixKeys
from actors.engines.server.process import API_KEY_VARIABLE
from actors.engines.weights import weight_files
from protocol.processes.loopback import is_loopback
from protocol.weights import WeightManifest
from tests.integration.actors.engines import tiny_qwen
from tests.support.actors.engine_requests import make_request
from tests.support.actors.engine_specs import engine_spec
from tests.support.processes import listening_at, process_group, shared_memory_of, title

pytestmark = [pytest.mark.sglang, pytest.mark.asyncio(loop_scope="module")]

_versions = itertools.count(1)


class Folders:
    def __init__(self, root: Path) -> None:
        self.random, self.a, self.b = root / "random", root / "a", root / "b"
        tiny_qwen.write_random(self.random)
        tiny_qwen.write_parrot(self.random, self.a, tiny_qwen.SAYS_A)
        tiny_qwen.write_parrot(self.random, self.b, tiny_qwen.SAYS_B)


def publish(folder: Path) -> WeightManifest:
    return tiny_qwen.manifest(next(_versions), folder)


def prompt(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(3, tiny_qwen.VOCABULARY), k=length)


def processes_that_mention(text: str) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if text.encode() in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
    return found


def environment_of(pid: int) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in Path(f"/proc/{pid}/environ").read_text().split("\0"))


def files_in(folder: str) -> list[Path]:
    return list(Path(folder).glob("*"))


def group_leaders_that_mention(text: str) -> set[int]:
    """Servers: they lead a group, but in the session of their reaper."""
    return {pid for pid in processes_that_mention(text) if os.getpgid(pid) == pid != os.getsid(pid)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("models"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SGLangEngine]:
    engine = SGLangEngine(
        engine_spec(
            name="tiny",
            run_dir=tmp_path_factory.mktemp("run"),
            model_path=str(folders.random),
            context_length=2048,
            max_total_tokens=20_000,
            max_running=16,
            device="cpu",
            node="here",
            probe_every_s=2.0,
            stall_timeout_s=20.0,
        )
    )
    await engine.start(publish(folders.random))
    yield engine
    await engine.stop()


async def sampling(engine: SGLangEngine, group: asyncio.TaskGroup, count: int) -> list[asyncio.Task[GenerateReply]]:
    """``count`` long requests that are being answered: a short one sent after them has been answered already."""
    tasks = [group.create_task(engine.generate(make_request(prompt(20, seed), 1500))) for seed in range(count)]
    while (await engine.statistics()).running < count:  # noqa: ASYNC110  # a state of another task, not an event
        await asyncio.sleep(0.01)
    await engine.generate(make_request(prompt(20, count), 20))
    return tasks


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_logprobs_are_those_of_the_trainer(engine: SGLangEngine, folders: Folders, temperature: float) -> None:
    await engine.load_weights(publish(folders.random), 300)
    given = prompt(40, 1)
    reply = await engine.generate(make_request(given, 200, temperature=temperature))
    expected = tiny_qwen.reference_logprobs(folders.random, given, reply.token_ids, temperature)
    assert reply.logprobs == pytest.approx(expected, abs=5e-5)
    assert len(reply.token_ids) == len(reply.logprobs) == len(reply.versions)


async def test_the_servers_key_is_on_no_command_line(engine: SGLangEngine) -> None:
    """Those are for every user to read, and whoever has the key can have the server unpickle what he likes."""
    assert len(key := environment_of((await engine.status()).pid)[API_KEY_VARIABLE]) == 32
    assert processes_that_mention(key) == set()


async def test_every_process_of_a_server_listens_on_loopback_alone(engine: SGLangEngine) -> None:
    """Behind its port is the key, behind those of its processes' groups there is nothing."""
    server = (await engine.status()).pid
    listening = {where for pid in process_group(server) for where in listening_at(pid)}
    assert (await engine.status()).port in {port for _, port in listening}
    assert len(listening) > 1, "the group's store is not seen"
    assert all(is_loopback(address) for address, _ in listening), listening


async def test_a_stop_token_ends_the_reply_and_is_part_of_it(engine: SGLangEngine, folders: Folders) -> None:
    await engine.load_weights(publish(folders.a), 300)
    stopped = await engine.generate(make_request(prompt(20, 2), 50, stop_token_ids=(tiny_qwen.SAYS_A,)))
    cut = await engine.generate(make_request(prompt(20, 2), 50, greedy=True))
    assert (stopped.token_ids, stopped.finish) == ([tiny_qwen.SAYS_A], "stop")
    assert (cut.token_ids, cut.finish) == ([tiny_qwen.SAYS_A] * 50, "length")


async def test_each_token_is_labelled_with_the_weights_that_sampled_it(engine: SGLangEngine, folders: Folders) -> None:
    old, new = publish(folders.a), publish(folders.b)
    await engine.load_weights(old, 300)
    async with asyncio.TaskGroup() as group:
        tasks = await sampling(engine, group, 8)
        report = await engine.load_weights(new, 300)
    assert report.version == new.version
    said_by = {tiny_qwen.SAYS_A: old.version, tiny_qwen.SAYS_B: new.version}
    for task in tasks:
        reply = task.result()
        assert [said_by[token] for token in reply.token_ids] == reply.versions
        assert (reply.versions[0], reply.versions[-1]) == (old.version, new.version)
        assert not reply.mixed_prefix


@pytest.mark.slow
async def test_a_thousand_requests_across_fifty_updates_have_no_wrong_label_and_no_unmarked_mixed_prefix(
    engine: SGLangEngine, folders: Folders, tmp_path: Path
) -> None:
    """Each version says a token of its own; sessions go on from what they have, so that prefixes are there to reuse."""
    sessions, replies_per_update, updates = 20, 20, 50
    said_by: dict[int, int] = {}
    prefilled: dict[int, set[int]] = {session: set() for session in range(sessions)}
    """Versions under which all that a session had was computed, by those weights alone."""
    replies: list[GenerateReply] = []
    more, ended = asyncio.Event(), asyncio.Event()

    async def load(number: int) -> None:
        token = 10 + number
        tiny_qwen.write_parrot(folders.random, tmp_path / str(token), token)
        manifest = publish(tmp_path / str(token))
        said_by[token] = manifest.version
        await engine.load_weights(manifest, 300)

    async def converse(session: int) -> None:
        dice, history = random.Random(session), prompt(60, session)
        while not ended.is_set():
            reply = await engine.generate(make_request(history, dice.randint(4, 40), session=str(session)))
            assert [said_by[token] for token in reply.token_ids] == reply.versions
            if reply.cached_tokens and not reply.mixed_prefix:
                assert reply.key_version in prefilled[session]
            if not reply.mixed_prefix:
                prefilled[session].add(reply.key_version)
            history = [*history, *reply.token_ids][-1500:] if len(history) < 1500 else prompt(60, session)
            replies.append(reply)
            more.set()

    await load(0)
    async with asyncio.TaskGroup() as group:
        for session in range(sessions):
            group.create_task(converse(session))
        for number in range(1, updates + 1):
            before = len(replies)
            while len(replies) < before + replies_per_update:
                more.clear()
                await more.wait()
            await load(number)
        ended.set()
    spanning = sum(len(set(reply.versions)) > 1 for reply in replies)
    assert len(replies) >= replies_per_update * updates
    assert len(said_by) == updates + 1
    assert spanning >= updates, "updates that no reply was under way for prove nothing"
    assert any(reply.cached_tokens for reply in replies)


async def test_a_prefix_is_cached_until_the_weights_change(engine: SGLangEngine, folders: Folders) -> None:
    given = make_request(prompt(300, 3), 5)
    await engine.load_weights(publish(folders.a), 300)
    await engine.generate(given)
    again = await engine.generate(given)
    new = publish(folders.b)
    await engine.load_weights(new, 300)
    fresh = await engine.generate(given)
    assert again.cached_tokens >= 290
    assert (fresh.cached_tokens, fresh.key_version, fresh.mixed_prefix) == (0, new.version, False)


async def test_a_session_may_keep_its_prefix_over_new_weights_and_is_marked(
    engine: SGLangEngine, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.slot.queue, "prefixes", PrefixKeys("session"))
    old, given = publish(folders.a), prompt(300, 13)
    await engine.load_weights(old, 300)
    begun = await engine.generate(make_request(given, 5, session="x"))
    new = publish(folders.b)
    await engine.load_weights(new, 300)
    kept = await engine.generate(make_request([*given, *begun.token_ids], 5, session="x"))
    other = await engine.generate(make_request([*given, *begun.token_ids], 5, session="y"))
    assert (kept.key_version, set(kept.versions), kept.mixed_prefix) == (old.version, {new.version}, True)
    assert kept.cached_tokens >= 300
    assert (other.key_version, other.cached_tokens, other.mixed_prefix) == (new.version, 0, False)


async def test_loading_the_already_loaded_version_does_not_pause_the_engine(
    engine: SGLangEngine, folders: Folders
) -> None:
    manifest = publish(folders.a)
    await engine.load_weights(manifest, 300)
    report = await engine.load_weights(manifest, 300)
    assert (report.version, report.pause_ms) == (manifest.version, 0.0)


async def test_the_same_weights_under_a_new_version_are_taken(engine: SGLangEngine, folders: Folders) -> None:
    await engine.load_weights(publish(folders.a), 300)
    renamed = publish(folders.a)
    await engine.load_weights(renamed, 300)
    assert set((await engine.generate(make_request(prompt(20, 4), 10))).versions) == {renamed.version}


def damage(kind: str, folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    data = file.read_bytes()
    if kind == "cut off":
        file.write_bytes(data[:-100])
    elif kind == "noise":
        file.write_bytes(b"\xff" * len(data))
    elif kind == "absent":
        file.unlink()
    else:
        tensors = load_file(file)
        if kind == "a tensor less":
            del tensors["model.layers.1.mlp.down_proj.weight"]
        else:
            tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()
        save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize("kind", ["cut off", "noise", "absent", "a tensor less", "another shape", "another digest"])
async def test_bad_files_are_refused_and_the_server_lives(
    engine: SGLangEngine, folders: Folders, tmp_path: Path, kind: str
) -> None:
    good = publish(folders.a)
    await engine.load_weights(good, 300)
    pid, bad = (await engine.status()).pid, tmp_path / "bad"
    shutil.copytree(folders.b, bad)
    if kind == "another digest":
        manifest = tiny_qwen.manifest(next(_versions), folders.a)
        manifest = WeightManifest(manifest.version, 0, manifest.parent, str(bad), manifest.sha256, 24, manifest.bytes)
    else:
        damage(kind, bad)
        manifest = publish(bad)
    with pytest.raises(InvalidWeights):
        await engine.load_weights(manifest, 300)
    reply = await engine.generate(make_request(prompt(20, 5), 10))
    assert (set(reply.token_ids), set(reply.versions)) == ({tiny_qwen.SAYS_A}, {good.version})
    assert (await engine.status()).pid == pid


async def test_the_engine_keeps_the_old_weights_when_the_server_fails_to_load_new_ones(
    engine: SGLangEngine, folders: Folders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good = publish(folders.a)
    await engine.load_weights(good, 300)
    pid = (await engine.status()).pid
    monkeypatch.setattr(weight_files, "check_weights", lambda manifest, model: None)
    shutil.copytree(folders.b, tmp_path / "vanished")
    vanished = publish(tmp_path / "vanished")
    (tmp_path / "vanished" / "model.safetensors").unlink()
    with pytest.raises(WeightLoadError):
        await engine.load_weights(vanished, 300)
    reply = await engine.generate(make_request(prompt(20, 6), 10))
    assert (set(reply.token_ids), set(reply.versions)) == ({tiny_qwen.SAYS_A}, {good.version})
    assert (await engine.status()).pid == pid


@pytest.mark.parametrize(
    "refused",
    [
        {"input_ids": [5, tiny_qwen.VOCABULARY]},
        {"input_ids": [-1]},
        {"input_ids": []},
        {"max_new_tokens": 2048},
        {"max_new_tokens": 0},
        {"temperature": 0.0},
    ],
)
async def test_requests_that_could_kill_the_server_or_falsify_logprobs_are_refused(
    engine: SGLangEngine, refused: dict[str, object]
) -> None:
    fields: dict[str, object] = {"input_ids": [5], "max_new_tokens": 5}
    with pytest.raises(RequestRefused):
        await engine.generate(make_request(**(fields | refused)))
    assert (await engine.generate(make_request([5], 5))).token_ids


async def test_the_whole_context_can_be_used(engine: SGLangEngine, folders: Folders) -> None:
    await engine.load_weights(publish(folders.a), 300)
    for room in (*range(1, 9), 100):
        reply = await engine.generate(make_request(prompt(2048 - room, room), room))
        assert (reply.finish, len(reply.token_ids)) == ("length", room)


async def test_cancelling_the_caller_of_a_load_does_not_leave_the_engine_paused(
    engine: SGLangEngine, folders: Folders
) -> None:
    await engine.load_weights(publish(folders.a), 300)
    new = publish(folders.b)
    async with asyncio.TaskGroup() as group:
        loading = group.create_task(engine.load_weights(new, 300))
        while (await engine.status()).state is not EngineState.UPDATING:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0)
        loading.cancel()
    reply = await engine.generate(make_request(prompt(20, 8), 10))
    assert (set(reply.token_ids), set(reply.versions)) == ({tiny_qwen.SAYS_B}, {new.version})


async def test_a_cancelled_request_is_ended_on_the_server_too(engine: SGLangEngine, folders: Folders) -> None:
    await engine.load_weights(publish(folders.a), 300)
    async with asyncio.TaskGroup() as group:
        for task in await sampling(engine, group, 3):
            task.cancel()
    statistics = await engine.statistics()
    assert (statistics.running, statistics.queued) == (0, 0)


@pytest.mark.slow
async def test_a_request_that_is_cancelled_ends_no_other(engine: SGLangEngine, folders: Folders) -> None:
    """The server ends every request whose name begins as it is told, and names are numbers; none is used twice, because
    it ends that name once more two seconds after each reply."""
    await engine.load_weights(publish(folders.a), 300)
    async with asyncio.TaskGroup() as group:
        engine.slot.queue.counters.requests = 99_999
        (cancelled,) = await sampling(engine, group, 1)
        engine.slot.queue.counters.requests = 999_999
        others = await sampling(engine, group, 13)
        cancelled.cancel()
    for task in others:
        assert (len(task.result().token_ids), task.result().server_switches) == (1500, 0)


async def test_a_request_past_its_deadline_fails_with_an_error_that_names_the_engine(engine: SGLangEngine) -> None:
    with pytest.raises(EngineUnavailable, match=r"tiny gave no reply in time \(0\.01 s to sample"):
        await engine.generate(make_request(prompt(20, 9), 1500, deadline_s=0.01))


async def waiting(engine: SGLangEngine, group: asyncio.TaskGroup) -> asyncio.Task[GenerateReply]:
    """A request that waits in the engine."""
    task = group.create_task(engine.generate(make_request(prompt(20, 11), 10)))
    while not (await engine.statistics()).queued:  # noqa: ASYNC110  # as above
        await asyncio.sleep(0)
    return task


def returns(engine: SGLangEngine) -> list[dict[str, object]]:
    """Return the engine's ``engine.onloaded`` events."""
    events = engine.slot.spec.run_dir / "events"
    lines = [orjson.loads(line) for path in events.glob("*.jsonl") for line in path.read_bytes().splitlines()]
    return [line for line in lines if line["kind"] == "engine.onloaded"]


async def test_an_offloaded_engine_serves_no_request_until_it_receives_weights(
    engine: SGLangEngine, folders: Folders
) -> None:
    """Otherwise it would decode in memory that belongs to the learner."""
    await engine.load_weights(publish(folders.a), 300)
    new = publish(folders.b)
    await engine.offload_memory(600, 300)
    assert (await engine.status()).state is EngineState.OFFLOADED
    async with asyncio.TaskGroup() as group:
        late = await waiting(engine, group)
        assert not late.done()
        report = await engine.load_weights(new, 300)
    assert (set(late.result().token_ids), set(late.result().versions)) == ({tiny_qwen.SAYS_B}, {new.version})
    assert (report.version, report.pause_ms) == (new.version, 0.0), "it is no pause for a load"
    assert report.offloaded_s > 0
    assert returns(engine)[-1]["version"] == new.version


@pytest.mark.slow
async def test_requests_in_progress_at_an_offload_continue_after_it(engine: SGLangEngine, folders: Folders) -> None:
    old, new, pid = publish(folders.a), publish(folders.b), (await engine.status()).pid
    await engine.load_weights(old, 300)
    said_by = {tiny_qwen.SAYS_A: old.version, tiny_qwen.SAYS_B: new.version}
    async with asyncio.TaskGroup() as group:
        tasks = await sampling(engine, group, 4)
        resent = (await engine.statistics()).resent
        await engine.offload_memory(600, 300)
        await engine.load_weights(new, 300)
    for reply in (task.result() for task in tasks):
        assert [said_by[token] for token in reply.token_ids] == reply.versions
        assert reply.versions[-1] == new.version
    assert (await engine.statistics()).resent == resent + 4
    assert (await engine.status()).pid == pid


async def test_an_offload_without_new_weights_ends_on_the_old_ones(engine: SGLangEngine, folders: Folders) -> None:
    old = publish(folders.a)
    await engine.load_weights(old, 300)
    for _ in range(2):
        await engine.offload_memory(600, 300)
        await engine.offload_memory(600, 300)
        await engine.load_weights(old, 300)
    reply = await engine.generate(make_request(prompt(20, 12), 10))
    assert (set(reply.token_ids), set(reply.versions)) == ({tiny_qwen.SAYS_A}, {old.version})


async def test_an_offloaded_engine_resumes_when_the_learner_exceeds_its_lease(
    engine: SGLangEngine, folders: Folders
) -> None:
    old = publish(folders.a)
    await engine.load_weights(old, 300)
    await engine.offload_memory(0.01, 300)
    reply = await engine.generate(make_request(prompt(20, 13), 10))
    assert (set(reply.token_ids), set(reply.versions)) == ({tiny_qwen.SAYS_A}, {old.version})
    assert returns(engine)[-1]["why"] == "the learner exceeded its lease"


@pytest.mark.chaos
async def test_a_server_that_dies_while_offloaded_comes_back_with_the_new_weights(
    engine: SGLangEngine, folders: Folders
) -> None:
    """Before its end there is no memory for it."""
    await engine.load_weights(publish(folders.a), 300)
    new, restarts = publish(folders.b), (await engine.statistics()).restarts
    await engine.offload_memory(600, 300)
    os.kill((await engine.status()).pid, signal.SIGKILL)
    while (await engine.status()).state is EngineState.OFFLOADED:  # noqa: ASYNC110  # as above
        await asyncio.sleep(0.01)
    await engine.offload_memory(600, 300)
    async with asyncio.TaskGroup() as group:
        late = await waiting(engine, group)
        assert (await engine.statistics()).restarts == restarts
        await engine.load_weights(new, 300)
    assert late.result().token_ids
    assert (await engine.status()).version == new.version
    assert (await engine.statistics()).restarts == restarts + 1


@pytest.mark.chaos
@pytest.mark.parametrize("newest_is", ["loaded", "staged"])
async def test_requests_outlive_the_death_of_the_server_and_get_the_newest_weights(
    engine: SGLangEngine, folders: Folders, newest_is: str
) -> None:
    """Also where the server that died had not been given them yet."""
    old, newest = publish(folders.a), publish(folders.b)
    await engine.load_weights(old, 300)
    restarts, pid = (await engine.statistics()).restarts, (await engine.status()).pid
    async with asyncio.TaskGroup() as group:
        tasks = await sampling(engine, group, 6)
        await (engine.load_weights(newest, 300) if newest_is == "loaded" else engine.stage_weights(newest, 300))
        os.kill(pid, signal.SIGKILL)
    statistics, status = await engine.statistics(), await engine.status()
    said_by = {tiny_qwen.SAYS_A: old.version, tiny_qwen.SAYS_B: newest.version}
    for task in tasks:
        reply = task.result()
        assert len(reply.token_ids) == 1500
        assert [said_by[token] for token in reply.token_ids] == reply.versions == sorted(reply.versions)
        assert set(reply.versions) == {old.version, newest.version}
        assert (reply.versions[0], reply.versions[-1], reply.server_switches) == (old.version, newest.version, 1)
    assert statistics.restarts == restarts + 1
    assert statistics.resent >= 6
    assert (status.state, status.version) == (EngineState.SERVING, newest.version)
    assert (await engine.status()).pid != pid


@pytest.mark.chaos
@pytest.mark.parametrize("part", ["scheduler", "detokenizer"])
async def test_a_server_that_loses_a_subprocess_is_replaced_at_once_and_leaves_nothing_behind(
    engine: SGLangEngine, folders: Folders, part: str
) -> None:
    """By itself it notices the end of its detokenizer a minute later, and requests hang until then."""
    manifest = publish(folders.a)
    await engine.load_weights(manifest, 300)
    restarts, pid = (await engine.statistics()).restarts, (await engine.status()).pid
    (victim,) = [member for member in process_group(pid) if title(member) == f"sglang::{part}"]
    left_behind = shared_memory_of(process_group(pid))
    async with asyncio.TaskGroup() as group:
        tasks = await sampling(engine, group, 6)
        os.kill(victim, signal.SIGKILL)
    for reply in (task.result() for task in tasks):
        assert (set(reply.token_ids), set(reply.versions)) == ({tiny_qwen.SAYS_A}, {manifest.version})
        assert (len(reply.token_ids), reply.server_switches) == (1500, 1)
    status = await engine.status()
    assert (status.state, status.restarts) == (EngineState.SERVING, restarts + 1)
    assert status.error == f"the server was ended: its {part} was killed by SIGKILL"
    assert process_group(pid) == set()
    assert left_behind
    assert not [path for path in left_behind if path.exists()]


@pytest.mark.chaos
async def test_a_server_whose_reaper_is_killed_is_replaced_and_leaves_no_temporary_files(
    engine: SGLangEngine, folders: Folders
) -> None:
    await engine.load_weights(publish(folders.a), 300)
    restarts, pid = (await engine.statistics()).restarts, (await engine.status()).pid
    temporary = environment_of(pid)["TMPDIR"]
    assert files_in(temporary)
    async with asyncio.TaskGroup() as group:
        tasks = await sampling(engine, group, 2)
        os.kill(os.getsid(pid), signal.SIGKILL)
    assert [task.result().server_switches for task in tasks] == [1, 1]
    status = await engine.status()
    assert (status.restarts, status.error) == (restarts + 1, "the server's process reaper was killed")
    assert not files_in(temporary)


@pytest.mark.chaos
async def test_an_interrupted_reply_resumes_from_its_last_token_with_correct_logprobs(
    engine: SGLangEngine, folders: Folders
) -> None:
    """Nothing that came is sampled again, and every log-probability is that of the whole sequence."""
    await engine.load_weights(publish(folders.random), 300)
    before = (await engine.statistics()).received_tokens
    async with asyncio.TaskGroup() as group:
        for given in (prompt(20, seed) for seed in itertools.count(11)):
            cut = group.create_task(engine.generate(make_request(given, 1500, name="cut")))
            came: list[int] = []
            while not cut.done() and len(came) <= 50:
                await asyncio.sleep(0.01)
                if (received := (await engine.partial_replies({"cut": 0})).get("cut")) is not None:
                    came = received.token_ids
            if not cut.done():  # a random model may end its reply before
                break
        os.kill((await engine.status()).pid, signal.SIGKILL)
    reply = cut.result()
    assert (reply.token_ids[: len(came)], reply.server_switches) == (came, 1)
    assert len(reply.token_ids) > len(came)
    assert (await engine.statistics()).received_tokens - before >= len(came)
    expected = tiny_qwen.reference_logprobs(folders.random, given, reply.token_ids, 1.0)
    assert reply.logprobs == pytest.approx(expected, abs=5e-5)
    assert await engine.partial_replies({"cut": 0}) == {}


@pytest.mark.slow
async def test_a_drained_engine_finishes_its_requests_and_then_serves_from_a_fresh_server(
    engine: SGLangEngine, folders: Folders
) -> None:
    """Nothing is cut off or sampled twice, and who comes meanwhile is served by the next."""
    await engine.load_weights(publish(folders.a), 300)
    before, resent = (await engine.status()).pid, (await engine.statistics()).resent
    async with asyncio.TaskGroup() as group:
        running = await sampling(engine, group, 3)
        draining = group.create_task(engine.drain(300))
        while (await engine.status()).state is not EngineState.DRAINING:  # noqa: ASYNC110  # a state, not an event
            await asyncio.sleep(0)
        later = group.create_task(engine.generate(make_request(prompt(20, 9), 20, restart_s=300)))
    assert draining.result()
    assert [(task.result().server_switches, len(task.result().token_ids)) for task in running] == [(0, 1500)] * 3
    assert len(later.result().token_ids) == 20
    assert (await engine.status()).pid != before
    assert (await engine.statistics()).resent == resent


@pytest.mark.slow
async def test_requests_that_outlast_a_drain_continue_on_the_new_server(engine: SGLangEngine, folders: Folders) -> None:
    await engine.load_weights(publish(folders.a), 300)
    async with asyncio.TaskGroup() as group:
        running = await sampling(engine, group, 2)
        drained = await engine.drain(0.0)
    assert not drained
    assert [(task.result().server_switches, len(task.result().token_ids)) for task in running] == [(1, 1500)] * 2


@pytest.mark.slow
async def test_a_server_that_lives_but_answers_nothing_is_replaced(engine: SGLangEngine, folders: Folders) -> None:
    newest = publish(folders.a)
    await engine.load_weights(newest, 300)
    server = (await engine.status()).pid
    for pid in process_group(server) - {server}:
        os.kill(pid, signal.SIGSTOP)
    reply = await engine.generate(make_request(prompt(20, 10), 10))
    assert (set(reply.token_ids), set(reply.versions)) == ({tiny_qwen.SAYS_A}, {newest.version})
    assert "silent" in (await engine.status()).error
    assert process_group(server) == set()


OWNER = """
import asyncio, sys
from pathlib import Path
from actors.engines.engine import SGLangEngine
from tests.integration.actors.engines import tiny_qwen
from tests.support.actors.engine_specs import engine_spec
from tests.support.processes import process_group

async def main(root: Path) -> None:
    model = root / "random"
    settings = engine_spec(name="orphan", run_dir=root / "run", model_path=str(model), context_length=512,
                              max_total_tokens=2000, max_running=2, device="cpu")
    await SGLangEngine(settings).start(tiny_qwen.manifest(1, model))

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.slow
async def test_an_owner_killed_while_its_server_starts_leaves_no_process(tmp_path: Path) -> None:
    await asyncio.to_thread(tiny_qwen.write_random, tmp_path / "random")
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, str(tmp_path), cwd=Path(__file__).parents[4], env=dict(os.environ)
    )
    async with asyncio.timeout(600):
        while not (servers := group_leaders_that_mention(str(tmp_path / "random"))):  # noqa: ASYNC110  # other processes, not events
            await asyncio.sleep(0.05)
        (server,) = servers
        while len(process_group(server)) < 3:  # noqa: ASYNC110  # the server's children: states, not events
            await asyncio.sleep(0.05)
    owner.kill()
    await owner.wait()
    async with asyncio.timeout(30):
        while process_group(server) or processes_that_mention(str(tmp_path)):  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.05)
