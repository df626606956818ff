"""The Ray seam on a real node: calls keep their types and errors, deaths have a name, values pass by reference."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from actors.runtime.remote import ActorOptions, Remote, ResultRef, kill_actor, spawn_actor
from actors.runtime.remote_errors import ActorDied, RemoteError
from protocol.errors import InfraError
from protocol.processes.stack_dumps import request_stack_dumps
from protocol.run_directory.process_log import ProcessLog
from tests.integration.actors.runtime.ray_counter import Blocking, Counter, Forwarder

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_node")]


async def test_a_call_keeps_arguments_results_and_the_error_as_it_was_raised() -> None:
    counter = spawn_actor(Counter, ActorOptions(name="calls", env={"LONGSHORE_TEST": "seen"}), 5)
    assert await counter.call(Counter.add, 2, twice=True) == 9
    assert await counter.call(Counter.variable, "LONGSHORE_TEST") == "seen"
    with pytest.raises(InfraError, match=r"^no more$") as caught:
        await counter.call(Counter.fail, "no more")
    assert type(caught.value) is InfraError
    kill_actor(counter)


async def test_many_calls_run_at_once_in_one_actor() -> None:
    counter = spawn_actor(Counter, ActorOptions(name="many"), 0)
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(counter.call(Counter.wait_for, 3)) for _ in range(20)]
        await counter.call(Counter.add, 3)
    assert [task.result() for task in waiting] == [3] * 20
    kill_actor(counter)


async def test_a_value_passes_from_actor_to_actor_by_reference() -> None:
    counter = spawn_actor(Counter, ActorOptions(name="maker"), 1)
    forwarder = spawn_actor(Forwarder, ActorOptions(name="forwarder"), counter)
    made: ResultRef[bytes] = counter.submit(Counter.make, 1_000_000)
    assert await forwarder.call(Forwarder.measure, made.argument()) == 1_000_000
    assert await forwarder.call(Forwarder.add_through, 4) == 5, "a handle works in the actor that it was passed to"
    assert len(await made.get()) == 1_000_000
    kill_actor(forwarder)
    kill_actor(counter)


async def test_the_death_of_an_actor_fails_its_running_calls_with_its_name() -> None:
    counter: Remote[Counter] = spawn_actor(Counter, ActorOptions(name="victim"), 0)
    pid = await counter.call(Counter.pid)
    waiting = counter.submit(Counter.wait_for, 3)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ActorDied, match=r"actor victim.*its process ended: [^(]*\(\w+\)$"):
        await waiting.get()
    with pytest.raises(ActorDied):
        await counter.call(Counter.add, 1)


async def test_a_call_made_with_call_once_is_not_repeated_after_an_actor_restart() -> None:
    """An engine would begin a reply anew of which somebody was told the beginning."""
    counter = spawn_actor(Counter, ActorOptions(name="once", max_restarts=1, max_task_retries=-1), 0)
    pid = await counter.call(Counter.pid)

    async def fails() -> bool:
        with pytest.raises(RemoteError, match="actor once"):
            await counter.call_once(Counter.wait_for, 3)
        return True

    async with asyncio.TaskGroup() as group:
        failed = group.create_task(fails())
        await counter.call(Counter.someone_waits)
        os.kill(pid, signal.SIGKILL)
    assert failed.result()
    assert await counter.call(Counter.add, 1) == 1, "others are"
    kill_actor(counter)


async def test_an_actor_process_writes_to_its_configured_log_after_a_restart_too(tmp_path: Path) -> None:
    """Otherwise the output of a library in a worker is lost with the worker."""
    log = ProcessLog(tmp_path / "logs" / "counter.jsonl", "run-1", "counter", "node-0")
    counter = spawn_actor(
        Counter, ActorOptions(name="logged", max_restarts=1, max_task_retries=-1, concurrent_calls=1, log=log), 0
    )
    pid = await counter.call(Counter.warn, "before")
    os.kill(pid, signal.SIGKILL)
    assert await counter.call(Counter.warn, "after") != pid
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [(line["event"], line["logger"], line["run"]) for line in lines] == [
        ("before", "a.library", "run-1"),
        ("after", "a.library", "run-1"),
    ]
    kill_actor(counter)


async def test_a_constructor_that_raises_says_why() -> None:
    counter = spawn_actor(Counter, ActorOptions(name="stillborn"), -1)
    with pytest.raises(ActorDied, match="its constructor raised ValueError: start must not be negative"):
        await counter.call(Counter.add, 1)


async def test_cancelling_a_call_cancels_the_coroutine_in_the_actor() -> None:
    counter = spawn_actor(Counter, ActorOptions(name="cancelled"), 0)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waiting = group.create_task(counter.call(Counter.wait_for, 3))
        await counter.call(Counter.someone_waits)
        waiting.cancel()
    async with asyncio.timeout(60):
        await counter.call(Counter.someone_was_cancelled)
    kill_actor(counter)


async def test_a_concurrent_call_neither_waits_for_other_calls_nor_blocks_them() -> None:
    blocking = spawn_actor(Blocking, ActorOptions(name="blocking", concurrent_calls=1))
    waiting = blocking.submit_concurrent(Blocking.wait)
    async with asyncio.timeout(60):
        thread = await blocking.call(Blocking.let_go)
        assert await waiting.get() != thread
        assert await blocking.call(Blocking.let_go) == thread, "its other calls have one thread for all"
    kill_actor(blocking)


async def test_an_actor_reports_the_waits_of_its_tasks_and_the_stacks_of_its_threads(tmp_path: Path) -> None:
    counter = spawn_actor(Counter, ActorOptions(name="run/1/counter"), 0)
    forwarder = spawn_actor(Forwarder, ActorOptions(name="run/1/forwarder"), counter)
    path = tmp_path / "forwarder.stacks"
    await forwarder.offer_stacks(path, "forwarder")
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waits = group.create_task(forwarder.call(Forwarder.wait_through, 99))
        await counter.call(Counter.someone_waits)
        (found,) = [each for each in await forwarder.list_tasks() if each.waits_for]
        assert found.waits_for == "counter.wait_for"
        assert any(frame.endswith("Forwarder.wait_through") for frame in found.frames)
        held_up = group.create_task(forwarder.call(Forwarder.hold_up))
        await counter.call(Counter.wait_for, 1)
        while "in hold_up" not in path.read_text():
            assert await request_stack_dumps([path]) == {}
        for each in (waits, held_up):
            each.cancel()
    kill_actor(forwarder)
    kill_actor(counter)


async def test_an_actor_without_coroutines_has_no_tasks() -> None:
    blocking = spawn_actor(Blocking, ActorOptions(name="no coroutines", concurrent_calls=1))
    assert await blocking.list_tasks() == ()
    kill_actor(blocking)
