"""The engine inside a Ray actor, as a run uses it: its event loop is Ray's, in a thread that is not the main one."""

import asyncio
import os
import select
import signal
from pathlib import Path

import pytest

from actors.engines.engine import SGLangEngine
from actors.engines.messages import EngineState, EngineUnavailable, OnPartialReply, PartialReply, RequestRefused
from actors.engines.remote_engine import RemoteEngine, polling_engines
from actors.runtime.remote import ActorOptions, kill_actor, spawn_actor
from tests.integration.actors.engines import tiny_qwen
from tests.support.actors.engine_requests import make_request
from tests.support.actors.engine_specs import engine_spec
from tests.support.processes import process_group

pytestmark = [pytest.mark.ray, pytest.mark.sglang]


@pytest.mark.usefixtures("ray_node")
@pytest.mark.slow
async def test_an_engine_actor_serves_and_loads_weights_and_its_server_dies_with_it(tmp_path: Path) -> None:
    """Between pause and continue, too: a server that nobody would continue is not left behind."""
    folders = [tmp_path / "random", tmp_path / "a"]
    tiny_qwen.write_random(folders[0])
    tiny_qwen.write_parrot(folders[0], folders[1], tiny_qwen.SAYS_A)
    settings = engine_spec(
        name="remote",
        run_dir=tmp_path / "run",
        model_path=str(folders[0]),
        context_length=2048,
        max_total_tokens=4000,
        max_running=4,
        device="cpu",
    )
    engine = spawn_actor(SGLangEngine, ActorOptions(name="engine-remote", max_concurrency=1000), settings)
    status = await engine.call(SGLangEngine.start, tiny_qwen.manifest(1, folders[0]))
    report = await engine.call(SGLangEngine.load_weights, tiny_qwen.manifest(2, folders[1]), 60)
    reply = await engine.call(SGLangEngine.generate, make_request([5, 6, 7], 10, deadline_s=60.0))
    assert (status.version, report.version) == (1, 2)
    assert (set(reply.token_ids), set(reply.versions)) == ({tiny_qwen.SAYS_A}, {2})
    with pytest.raises(RequestRefused, match="outside the vocabulary"):
        await engine.call(SGLangEngine.generate, make_request([tiny_qwen.VOCABULARY], 10, deadline_s=60.0))

    server = (await engine.call(SGLangEngine.status)).pid
    pidfd = os.pidfd_open(server)
    partials, came = list[PartialReply](), asyncio.Event()

    def watch(received: PartialReply) -> None:
        partials.append(received)
        came.set()

    remote = RemoteEngine(engine)
    async with polling_engines([remote], lambda name, load: None), asyncio.TaskGroup() as group:
        cut = group.create_task(_cut_off(remote, watch))
        await came.wait()
        for pid in process_group(server):
            os.kill(pid, signal.SIGSTOP)  # so that the pause lasts
        engine.submit(SGLangEngine.load_weights, tiny_qwen.manifest(3, folders[0]), 60)
        while (await engine.call(SGLangEngine.status)).state is not EngineState.UPDATING:  # noqa: ASYNC110  an actor's state
            await asyncio.sleep(0.01)
        kill_actor(engine)
    assert cut.result() == partials[-1], "the next engine would take back what a watcher was told"
    assert set(partials[0].token_ids) == {tiny_qwen.SAYS_A}
    ended, _, _ = select.select([pidfd], [], [], 60)
    os.close(pidfd)
    assert ended
    async with asyncio.timeout(60):
        while process_group(server):  # noqa: ASYNC110  its children end behind it
            await asyncio.sleep(0.05)


async def _cut_off(engine: RemoteEngine, watch: OnPartialReply) -> PartialReply:
    """Start a long reply and return the part that came before the engine stopped."""
    with pytest.raises(EngineUnavailable) as lost:
        await engine.generate(make_request([5, 6, 7], 2000, deadline_s=60.0), watch)
    return lost.value.partial_reply
