"""If these fail, what a dead worker left is not swept, nobody knows which process did not stop, or a run waits for a
machine that is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from actors.engines.engine import SGLangEngine
from actors.engines.interface import Engine
from actors.engines.messages import EngineStartError, EngineState
from actors.engines.settings import EngineSpec
from actors.runtime.remote import ActorOptions, Remote, short_actor_name
from actors.runtime.remote_errors import RemoteError
from actors.weight_transport.host_cache import HostWeightCache
from actors.weight_transport.source import WeightSource
from actors.workers.episode_runner import EpisodeRunner
from actors.workers.rollout_worker import RolloutWorker
from actors.workers.settings import WorkerSpec
from launch.actor_group import (
    actor_spawner,
    actor_stopper,
    container_cleanup,
    engine_group,
    evaluation_actors,
    health_monitor,
    learner_starter,
    node_supervisor,
)
from launch.actor_group.actor_spawner import RunActorSpawner
from launch.actor_group.actor_stopper import stop_actors
from launch.actor_group.container_cleanup import container_settle_s, remove_orphaned_containers
from launch.actor_group.engine_group import EngineGroup
from launch.actor_group.evaluation_actors import EvaluationActors
from launch.actor_group.health_monitor import HealthMonitor
from launch.actor_group.learner_group import LearnerGroup
from launch.actor_group.learner_starter import LearnerStarter
from launch.actor_group.node_supervisor import NodeSupervisor
from launch.actor_group.specs.worker_spec import BufferAddress
from launch.actor_group.worker_group import WorkerGroup
from launch.config import load_recipe
from launch.data.demo.model import build_demo_model
from launch.doctor.finding import CheckName, Finding, failed, warning
from launch.hosts import remote_hosts
from launch.hosts.cluster_context import LOCAL_CLUSTER, ClusterContext
from launch.hosts.cluster_nodes import ClusterNode, NodeRole, RayNode
from launch.hosts.membership import NodeMembership
from launch.hosts.node_agent import LogSync
from launch.hosts.node_requirements import NodeRequirements
from launch.hosts.placement import WorkerShare, expected_workers
from launch.hosts.remote_hosts import RemoteHost, RemoteHosts
from launch.run_records.run_directory import RunDirectory
from learner.rank import LearnerRank
from learner.spec import LearnerSpec
from protocol.errors import InfraError, UserError
from protocol.events import EventLog
from protocol.stream import RunKeys, make_run_keys
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from sandbox.pool.run_orphans import SETTLE_S
from tests.support.actors.local_actors import LocalRemote

HEAD, SECOND, THIRD = (
    ClusterNode(f"node-{index}", f"ray-{index}", f"10.0.0.{index}", remote=index > 0) for index in range(3)
)


class NotedRemovals:
    """Fake: notes the workers whose requests are to be issued again."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    async def remove_worker(self, worker: str) -> None:
        self.removed.append(worker)


class FakeRemoteHosts:
    """Fake: all that other machines need is there at once."""

    def __init__(self) -> None:
        self.hosts: dict[str, RemoteHost] = {}
        self.prepared: list[str] = []
        self.removed: list[str] = []

    async def prepare_nodes(self, nodes: Sequence[ClusterNode], copy_homes: Mapping[str, ClusterNode]) -> None:
        self.prepared += [node.name for node in nodes if node.remote]

    async def exclude_from_broadcast(self, node: ClusterNode) -> None: ...

    def remove_node(self, node: ClusterNode) -> None:
        self.removed.append(node.name)


class Parts:
    """The parts of an actor group on some nodes, without Ray."""

    def __init__(
        self,
        directory: RunDirectory,
        events: EventLog,
        nodes: list[ClusterNode],
        *overrides: str,
        keys: RunKeys | None = None,
        remote_hosts: FakeRemoteHosts | None = None,
    ) -> None:
        config = self.config = load_recipe("demo", overrides)
        self.directory, self.events, self.nodes, self.scheduler = directory, events, nodes, NotedRemovals()
        self.spawner = RunActorSpawner(config, directory, "")
        self.remote_hosts = cast("RemoteHosts", remote_hosts) or RemoteHosts(
            config, directory, events, model=directory.path, spawn_on=self.spawner.spawn, token="", settled_s=60.0
        )
        shared: Any = {
            "spawner": self.spawner,
            "remote_hosts": self.remote_hosts,
        }
        self.engines = EngineGroup(config, directory, engine_class=SGLangEngine, events=events, **shared)
        self.workers = WorkerGroup(
            config,
            directory,
            scheduler=LocalRemote(self.scheduler, "scheduler"),
            buffer=BufferAddress("tcp://127.0.0.1:1", keys),
            share=WorkerShare(4, 2),
            episode_runner=EpisodeRunner,
            **shared,
        )
        self.health_monitor = HealthMonitor(
            events, 60.0, self.engines.transport, node_of=self.spawner.node_of, logs_of=self.spawner.logs_of
        )
        self.evaluation = EvaluationActors(
            config,
            directory,
            nodes,
            spawner=self.spawner,
            engines=self.engines,
            workers=self.workers,
            remote_hosts=self.remote_hosts,
            health_monitor=self.health_monitor,
            events=events,
            tasks={},
        )

    def place(self, actor: Remote[Any], node: ClusterNode) -> None:
        """Let the spawner know an actor that it did not start."""
        self.spawner.options(node, short_actor_name(actor.name))

    def supervisor(
        self, on_engine_lost: Callable[[str], Awaitable[None]], cluster: ClusterContext = LOCAL_CLUSTER
    ) -> NodeSupervisor:
        return NodeSupervisor(
            self.config,
            self.nodes,
            cluster=cluster,
            spawner=self.spawner,
            scheduler=LocalRemote(self.scheduler, "scheduler"),
            engines=self.engines,
            workers=self.workers,
            evaluation=self.evaluation,
            remote_hosts=self.remote_hosts,
            health_monitor=self.health_monitor,
            events=self.events,
            tasks={},
            on_engine_lost=on_engine_lost,
        )


async def ignore_lost_engine(name: str) -> None: ...


@contextmanager
def make_parts(folder: Path, nodes: Sequence[ClusterNode] = (HEAD,), *overrides: str, **parts: Any) -> Generator[Parts]:
    with RunDirectory.create(folder, "demo", "mine") as directory:
        events = EventLog(directory.path, "driver", "node-0")
        yield Parts(directory, events, list(nodes), *overrides, **parts)
        events.close()


def named(name: str) -> str:
    """The name in the Ray session of an actor of the run."""
    return f"mine/1/{name}"


class FakeWorker:
    """Its process dies once in the middle of its work."""

    def __init__(self, deaths: int) -> None:
        self.name, self._deaths = named("worker-0-0"), deaths

    async def call(self, *_: object) -> None:
        if self._deaths:
            self._deaths -= 1
            raise RemoteError(self.name, "its process died")


async def test_a_worker_that_is_dead_when_training_ends_does_not_end_the_run(tmp_path: Path) -> None:
    with make_parts(tmp_path) as parts:
        parts.workers.workers = (cast("Remote[RolloutWorker]", FakeWorker(deaths=1)),)
        await parts.workers.cancel_training()


class NotedActor:
    """An actor that notes its calls in a list that all of them share."""

    def __init__(self, name: str, calls: list[str], *, fails: bool = False) -> None:
        self.name, self._short, self._calls, self._fails = name, short_actor_name(name), calls, fails
        self._working = asyncio.Event()

    async def call(self, method: Callable[..., object], *arguments: object) -> object:
        if method is RolloutWorker.run:
            self._calls.append(f"{self._short} runs")
            await self._working.wait()
        elif method is Engine.start:
            manifest = cast("WeightManifest", arguments[0])
            self._calls.append(f"{self._short} starts on {manifest.version} of {manifest.path}")
            if self._fails:
                raise EngineStartError("no memory")
        elif method in {RolloutWorker.stop, Engine.stop}:
            self._calls.append(f"{self._short} stops")
            self._working.set()
            for _ in range(20):
                await asyncio.sleep(0)
        elif method is Engine.status:
            return SimpleNamespace(state=EngineState.STOPPED if self._working.is_set() else EngineState.SERVING)
        return None

    async def pid(self) -> int:
        return 7

    async def offer_stacks(self, path: Path, name: str) -> None: ...


@contextmanager
def evaluating(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *overrides: str,
    fails: bool = False,
    nodes: Sequence[ClusterNode] = (ClusterNode("node-0", "ray-0", "127.0.0.1"),),
) -> Generator[tuple[Parts, list[str], list[tuple[str, tuple[object, ...]]]]]:
    """The parts, the calls of their actors, and (name, arguments) of the actors that are spawned."""
    calls, spawned = list[str](), list[tuple[str, tuple[object, ...]]]()

    def spawn(_: object, options: ActorOptions, *arguments: object) -> NotedActor:
        actor = NotedActor(options.name, calls, fails=fails)
        spawned.append((short_actor_name(actor.name), arguments))
        return actor

    monkeypatch.setattr(health_monitor, "CHECK_S", 0.0)
    monkeypatch.setattr(health_monitor, "restart_actor", lambda actor: calls.append(f"{actor.name} is started again"))
    monkeypatch.setattr(actor_spawner, "spawn_actor", spawn)
    monkeypatch.setattr(
        actor_spawner, "kill_actor", lambda actor: calls.append(f"{short_actor_name(actor.name)} is killed")
    )
    with make_parts(folder, nodes, *overrides) as parts:
        engine, worker = (NotedActor(named(name), calls) for name in ("engine-0", "worker-0-0"))
        parts.engines.engines = (cast("Remote[Engine]", engine),)
        parts.workers.workers = (cast("Remote[RolloutWorker]", worker),)
        for actor in (engine, worker):
            parts.place(cast("Remote[Any]", actor), nodes[0])
        yield parts, calls, spawned


EVALUATED = WeightManifest(WeightVersion(8), 4, NO_VERSION, "/weights", "", 0, 0)


async def test_an_evaluation_starts_a_separate_engine_and_worker_and_stops_them_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with evaluating(tmp_path, monkeypatch) as (parts, calls, spawned):
        async with parts.evaluation.running(EVALUATED):
            while "evaluation-worker-1 runs" not in calls:  # noqa: ASYNC110  no event tells
                await asyncio.sleep(0)
        engine, worker = spawned
        assert (engine[0], worker[0]) == ("evaluation-engine-1", "evaluation-worker-1")
        settings, _, engines, *_ = worker[1]
        assert cast("WorkerSpec", settings).online_evaluation
        assert [short_actor_name(each.name) for each in cast("tuple[NotedActor, ...]", engines)] == [
            "evaluation-engine-1"
        ]
        assert calls == [
            "evaluation-engine-1 starts on 8 of /weights",
            "evaluation-worker-1 runs",
            "evaluation-worker-1 stops",
            "evaluation-engine-1 stops",
            "evaluation-worker-1 is killed",
            "evaluation-engine-1 is killed",
        ]
        async with parts.evaluation.running(EVALUATED):
            pass
        assert [name for name, _ in spawned[2:]] == ["evaluation-engine-2", "evaluation-worker-2"], (
            "a name may still be another's"
        )


async def test_on_a_shared_device_an_evaluation_starts_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = ("cluster.placement=colocated", "run.mode=sync")
    with evaluating(tmp_path, monkeypatch, *shared) as (parts, calls, spawned):
        async with parts.evaluation.running(EVALUATED):
            pass
        ((name, (_, _, engines, *_)),) = spawned
        assert (name, engines) == ("evaluation-worker-1", parts.engines.engines)
        assert not [each for each in calls if each.startswith("engine")]


async def test_an_evaluation_that_cannot_start_leaves_no_actors_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with evaluating(tmp_path, monkeypatch, fails=True) as (parts, calls, _):
        with pytest.raises(EngineStartError):
            async with parts.evaluation.running(EVALUATED):
                raise AssertionError
        assert calls[-2:] == ["evaluation-worker-1 is killed", "evaluation-engine-1 is killed"]
    with evaluating(tmp_path / "full", monkeypatch, "sandbox.capacity_per_node=32") as (parts, calls, spawned):
        with pytest.raises(UserError, match="leaves no sandbox beside training's"):
            async with parts.evaluation.running(EVALUATED):
                raise AssertionError
        assert spawned == []


class FakeMachineCopies:
    """A machine's copies of weights."""

    def __init__(self, *, never_come: bool = False) -> None:
        self.pinned, self.requested, self._never_come = list[bool](), asyncio.Event(), never_come

    async def fetch_version(
        self, manifest: WeightManifest, served: WeightVersion, *, refetch: bool = False, pinned: bool = False
    ) -> WeightManifest:
        self.pinned.append(pinned)
        self.requested.set()
        if self._never_come:
            await asyncio.Event().wait()
        return replace(manifest, path="/copy")


async def test_an_evaluation_on_another_machine_reads_a_local_weight_copy_and_fails_with_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def evaluate() -> None:
        async with parts.evaluation.running(EVALUATED):
            await parts.supervisor(ignore_lost_engine).remove_node(SECOND)
            await asyncio.Event().wait()

    copies, nodes = FakeMachineCopies(), [HEAD, replace(SECOND, roles=frozenset({NodeRole.ENGINE}))]
    with evaluating(tmp_path, monkeypatch, nodes=nodes) as (parts, calls, spawned):
        parts.remote_hosts.hosts[SECOND.address] = host_with(copies)
        with pytest.raises(InfraError, match=r"node-1 \(10.0.0.1\), on which the evaluation ran, is lost"):
            await evaluate()
        ((_, (settings, _)), _) = spawned
        assert cast("EngineSpec", settings).model_path == "/model"
        assert not cast("EngineSpec", settings).offloads_memory
        assert calls[0] == "evaluation-engine-1 starts on 8 of /copy"
        assert copies.pinned == [True], "no broadcast waits for it"
        assert not parts.engines.transport.copies
        with pytest.raises(UserError, match="the node of the evaluation engine, is lost"):
            parts.evaluation.require_capacity()


def host_with(copies: FakeMachineCopies) -> RemoteHost:
    """Return the remote host of the second node."""
    return RemoteHost(SECOND, cast("LogSync", None), LocalRemote(cast("HostWeightCache", copies)), Path("/model"))


async def test_an_evaluation_on_a_machine_that_lost_its_weight_copies_fails_without_other_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run ends for it, as when another node is lost."""
    nodes = [HEAD, replace(SECOND, roles=frozenset({NodeRole.ENGINE}))]
    with evaluating(tmp_path, monkeypatch, nodes=nodes) as (parts, _, spawned):
        with pytest.raises(InfraError, match=r"machine of node-1 \(10.0.0.1\) was lost with another node"):
            async with parts.evaluation.running(EVALUATED):
                raise AssertionError
        assert spawned == []


async def test_an_evaluation_with_an_engine_that_never_starts_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of training waits for it."""
    monkeypatch.setattr(NotedActor, "pid", lambda _: asyncio.Event().wait())
    monkeypatch.setattr(evaluation_actors, "ACTOR_START_S", 0.01)
    with (
        evaluating(tmp_path, monkeypatch) as (parts, *_),
        pytest.raises(InfraError, match=r"has no process after.*`ray status`"),
    ):
        async with parts.evaluation.running(EVALUATED):
            raise AssertionError


async def test_an_evaluation_fails_if_its_node_is_lost_while_its_engine_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose_node() -> None:
        await copies.requested.wait()
        await parts.supervisor(ignore_lost_engine).remove_node(SECOND)

    copies = FakeMachineCopies(never_come=True)
    roles = (NodeRole.WORKER, NodeRole.ENGINE)
    nodes = [replace(node, roles=frozenset({role})) for node, role in zip((HEAD, SECOND), roles, strict=True)]
    with evaluating(tmp_path, monkeypatch, nodes=nodes) as (parts, *_):
        parts.remote_hosts.hosts[SECOND.address] = host_with(copies)
        async with asyncio.TaskGroup() as group:
            group.create_task(lose_node())
            with pytest.raises(InfraError, match="on which the evaluation ran, is lost"):
                async with parts.evaluation.running(EVALUATED):
                    raise AssertionError


async def test_broadcasts_do_not_wait_for_a_lost_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, each later version waits for that machine and arrives late by the fallback transport."""

    class FakeWeightSource:
        """Fake: notes how many hosts it waits for."""

        def __init__(self) -> None:
            self.hosts: list[int] = []

        async def set_host_count(self, hosts: int) -> None:
            self.hosts.append(hosts)

    def on(node: ClusterNode, name: str, cls: object, /, *args: object, **kwargs: object) -> LocalRemote[Any]:
        return LocalRemote(source if cls is WeightSource else SimpleNamespace(fetch_model=lambda _: "/model"), name)

    source = FakeWeightSource()
    monkeypatch.setattr(remote_hosts, "_make_scratch_folder", AsyncMock())
    with make_parts(tmp_path) as parts:
        hosts = RemoteHosts(
            parts.config, parts.directory, parts.events, model=tmp_path, spawn_on=on, token="", settled_s=60.0
        )
        await hosts.prepare_nodes([HEAD, SECOND, THIRD], {"engine-0": SECOND, "engine-1": HEAD})
        await hosts.exclude_from_broadcast(THIRD)
        await hosts.exclude_from_broadcast(SECOND)
    assert source.hosts == [1]


class Stopping:
    """Needs its time to stop."""

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self._seconds = name, seconds

    async def call(self, *_: object) -> None:
        await asyncio.sleep(self._seconds)


class Starting:
    """An engine whose server does not come up at so many tries."""

    def __init__(self, failures: int) -> None:
        self.name, self.tries, self._failures = "mine/1/engine-0", 0, failures

    async def call(self, *_: object) -> None:
        self.tries += 1
        if self.tries <= self._failures:
            raise EngineStartError("it was killed")


@pytest.mark.parametrize(("failures", "tries"), [(0, 1), (1, 2), (9, 2)])
async def test_a_server_that_does_not_come_up_is_started_once_more(tmp_path: Path, failures: int, tries: int) -> None:
    engine = Starting(failures)
    with make_parts(tmp_path) as parts:
        parts.engines.engines = (cast("Remote[Engine]", engine),)
        with pytest.RaisesGroup(EngineStartError) if failures > 1 else nullcontext():
            await parts.engines.start(WeightManifest(WeightVersion(0), 0, NO_VERSION, "", "", 0, 0))
    assert engine.tries == tries


@pytest.mark.parametrize("deaths", [0, 1])
async def test_cleanup_at_the_end_waits_for_the_docker_daemon_only_after_a_worker_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    swept: list[tuple[str, float]] = []

    async def remove_run_orphans(run_id: str, for_s: float) -> int:
        swept.append((run_id, for_s))
        return 0

    monkeypatch.setattr(container_cleanup, "remove_run_orphans", remove_run_orphans)
    monkeypatch.setattr(health_monitor, "RETRY_S", 0.0)
    with make_parts(tmp_path) as parts:
        monitor = parts.health_monitor
        await monitor.keep_worker_running(cast("Remote[RolloutWorker]", FakeWorker(deaths)), {})
        if (settle_s := container_settle_s(monitor.last_worker_death, parts.config)) is not None:
            await remove_orphaned_containers("mine", settle_s, parts.events)
    assert [run_id for run_id, _ in swept] == ["mine"] * deaths
    assert all(0 < for_s <= SETTLE_S for _, for_s in swept)


async def test_an_actor_that_does_not_stop_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_stopper, "ACTOR_STOP_S", 0.01)
    hangs, stops = (
        cast("Remote[RolloutWorker]", Stopping(name, seconds)) for name, seconds in (("hangs", 60), ("stops", 0))
    )
    with make_parts(tmp_path) as parts:
        assert await stop_actors([hangs, stops], RolloutWorker.stop, parts.events) == [hangs]
    (line,) = (tmp_path / "mine" / "events" / "driver.jsonl").read_text().splitlines()
    assert json.loads(line)["why"] == "hangs did not answer within 0.01 s"


class NotedRank:
    def __init__(self) -> None:
        self.changes: list[tuple[int, float]] = []

    def set_learning_rate(self, step: int, lr: float) -> None:
        self.changes.append((step, lr))

    def setup(self) -> None: ...


async def test_a_requested_learning_rate_reaches_the_current_learner_and_its_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank, specs = NotedRank(), list[LearnerSpec]()

    def spawn(spec: LearnerSpec, *_: object, **__: object) -> LearnerGroup:
        specs.append(spec)
        return LearnerGroup((LocalRemote(rank, "run/1.1/learner-0"),), 60.0)

    monkeypatch.setattr(learner_starter, "spawn_learner_group", spawn)
    monkeypatch.setattr(actor_spawner, "kill_actor", lambda _: None)
    with make_parts(tmp_path) as parts:
        starter = LearnerStarter(
            parts.config,
            parts.directory,
            HEAD,
            model_path=tmp_path,
            spawner=parts.spawner,
            learner_class=LearnerRank,
            events=parts.events,
        )
        await starter.start()
        await starter.set_learning_rate_from(5, 1e-4)
        await starter.set_learning_rate_from(9, 1e-5)
        await starter.start()
    assert rank.changes == [(5, 1e-4), (9, 1e-5)]
    assert [spec.lr_changes for spec in specs] == [(), ((5, 1e-4), (9, 1e-5))]


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the actors that were."""
    names = list[str]()

    def kill(actor: Remote[object]) -> None:
        names.append(short_actor_name(actor.name))

    monkeypatch.setattr(actor_spawner, "kill_actor", kill)
    return names


@contextmanager
def make_parts_on(
    folder: Path, engines: Sequence[ClusterNode], workers: Sequence[ClusterNode], **parts: Any
) -> Generator[Parts]:
    with make_parts(folder, [HEAD, SECOND], remote_hosts=FakeRemoteHosts(), **parts) as made:
        made.engines.engines = tuple(LocalRemote(None, named(f"engine-{node.name}")) for node in engines)
        made.workers.workers = tuple(LocalRemote(None, named(f"worker-{node.name}")) for node in workers)
        for node, actor in zip([*engines, *workers], [*made.engines.engines, *made.workers.workers], strict=True):
            made.place(actor, node)
        yield made


def short_names(actors: Sequence[Remote[Any]]) -> list[str]:
    return [short_actor_name(actor.name) for actor in actors]


async def test_no_process_waits_for_a_lost_node(tmp_path: Path, killed: list[str]) -> None:
    """Neither here nor by another process: Ray would start what it had as soon as its places are back."""
    lost: list[str] = []

    async def lose_engine(name: str) -> None:
        lost.append(name)

    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    with make_parts_on(tmp_path, engines=[HEAD, SECOND], workers=[HEAD, SECOND]) as parts:
        supervisor = parts.supervisor(lose_engine)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            supervisor.run_on_node(group, parts.workers.workers[1], wait_for_ever())
            await supervisor.remove_node(SECOND)
        assert short_names([*parts.engines.engines, *parts.workers.workers]) == ["engine-node-0", "worker-node-0"]
        assert parts.scheduler.removed == ["worker-1-0"]
    assert lost == [named("engine-node-1")]
    assert killed == ["worker-node-1", "engine-node-1"]


async def test_a_judge_starts_on_its_folder_and_is_missed_but_not_waited_for_once_its_node_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: list[str]
) -> None:
    folder, calls = tmp_path / "judge", list[str]()
    build_demo_model(folder, load_recipe("demo", ["model.layers=1"]).model, 0, positions=2048)
    keys = ("judge.enabled=true", f"judge.model={folder}", "learner.advantage=turn")
    second = replace(SECOND, remote=False)
    monkeypatch.setattr(actor_spawner, "spawn_actor", lambda _, options, *__: NotedActor(options.name, calls))
    with make_parts(tmp_path / "runs", [HEAD, second], *keys) as parts:
        engines = parts.engines
        engines.spawn_all(HEAD, {"engine-0": HEAD}, {"judge-0": second}, {})
        (judge,) = engines.judges
        assert engines.judge_weights_to_start(judge) is None, "else two would start it at once"
        await engines.start(EVALUATED)
        assert sorted(calls) == ["engine-0 starts on 8 of /weights", f"judge-0 starts on 0 of {folder}"]
        assert engines.judge_weights_to_start(judge) == WeightManifest(
            WeightVersion(0), 0, NO_VERSION, str(folder), "", 0, 0
        )
        parts.workers.workers = (LocalRemote(None, named("worker-0-0")),)
        parts.place(parts.workers.workers[0], HEAD)
        await parts.supervisor(ignore_lost_engine).remove_node(second)
        assert (short_names(engines.engines), engines.judges, killed) == (["engine-0"], (), ["judge-0"])
        events = (parts.directory.path / "events" / "driver.jsonl").read_text()
    assert "judge-0 is lost with node-1: votes asked of it fail until the run is resumed" in events


class Unscheduled:
    """Fake: an engine that Ray starts once its place is there, until it is killed or its node ends."""

    def __init__(self) -> None:
        self.requested, self.ended = asyncio.Event(), asyncio.Event()

    async def start(self, manifest: WeightManifest) -> None:
        self.requested.set()
        await self.ended.wait()
        raise RemoteError("engine-node-1", "its node ended")


class StartedEngine:
    """Fake: an engine that starts at once."""

    async def start(self, manifest: WeightManifest) -> None: ...


@pytest.mark.parametrize("told_first", ["driver", "caller"])
async def test_an_engine_lost_with_its_node_during_the_start_does_not_block_the_other_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told_first: str
) -> None:
    """With many machines, one fails in the minutes in which servers start."""

    async def lose_node() -> None:
        await gone.requested.wait()
        if told_first == "caller":
            gone.ended.set()
            for _ in range(20):
                await asyncio.sleep(0)
        await parts.supervisor(ignore_lost_engine).remove_node(SECOND)

    gone = Unscheduled()
    monkeypatch.setattr(actor_spawner, "kill_actor", lambda _: gone.ended.set())
    with make_parts_on(tmp_path, engines=[HEAD, SECOND], workers=[HEAD]) as parts:
        starts = LocalRemote(StartedEngine(), named("engine-node-0"))
        parts.engines.engines = (starts, LocalRemote(gone, named("engine-node-1")))
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.engines.start(EVALUATED))
            group.create_task(lose_node())
        assert parts.engines.engines == (starts,)


async def test_an_engine_that_is_lost_while_its_node_lives_fails_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_group, "LOSS_REPORT_S", 0.01)
    lost = Unscheduled()
    lost.ended.set()
    with make_parts_on(tmp_path, engines=[SECOND], workers=[HEAD]) as parts:
        parts.engines.engines = (LocalRemote(lost, named("engine-node-1")),)
        with pytest.RaisesGroup(RemoteError):
            await parts.engines.start(EVALUATED)


@pytest.mark.parametrize(
    ("engines", "workers", "what"), [([SECOND], [HEAD, SECOND], "an engine"), ([HEAD], [SECOND], "workers")]
)
@pytest.mark.usefixtures("killed")
async def test_a_run_that_loses_its_last_node_for_a_role_ends_and_names_what_is_missing(
    tmp_path: Path, engines: list[ClusterNode], workers: list[ClusterNode], what: str
) -> None:
    says = f"node-1.*is lost, and no other node has {what}"
    with make_parts_on(tmp_path, engines, workers) as parts, pytest.raises(InfraError, match=says):
        await parts.supervisor(ignore_lost_engine).remove_node(SECOND)


@pytest.mark.parametrize(
    ("finding", "roles", "refused"),
    [
        (None, "", ""),
        (warning(CheckName.CLOCK, "nobody keeps it right", "set it by NTP"), "", ""),
        (failed(CheckName.GPU, "no GPU", "take another"), "", ""),
        (failed(CheckName.DOCKER, "no Docker engine answers", "run `make setup`"), "", "engine answers: run `make"),
        (failed(CheckName.VERSIONS, "other code", "bring both to the same commit"), "", "other code: bring both"),
        (None, "engine", "its label longshore/roles=engine excludes workers"),
    ],
)
async def test_a_joining_node_gets_workers_if_it_meets_their_requirements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finding: Finding | None, roles: str, refused: str
) -> None:
    """And whoever started it reads what it lacks."""
    joins = not refused

    async def check(nodes: Sequence[ClusterNode], _: object) -> dict[str, tuple[Finding, ...]]:
        return {} if finding is None else {node.name: (finding,) for node in nodes}

    class Idle:
        """Fake: its process lives, and it works until it is stopped."""

        async def run(self, tasks: object) -> None: ...

    monkeypatch.setattr(node_supervisor, "check_nodes", check)
    monkeypatch.setattr(actor_spawner, "spawn_actor", lambda _, options, *__: LocalRemote(Idle(), options.name))
    with make_parts_on(tmp_path, engines=[HEAD], workers=[HEAD]) as parts:
        monkeypatch.setattr(parts.health_monitor, "watch_liveness", lambda _: asyncio.sleep(0))
        monkeypatch.setattr(parts.remote_hosts, "model_folder", lambda _: Path("/model"), raising=False)
        monkeypatch.setattr(parts.remote_hosts, "judge_folder", lambda _: None, raising=False)
        supervisor = parts.supervisor(
            ignore_lost_engine, ClusterContext(node_requirements=cast("NodeRequirements", ()))
        )
        membership = NodeMembership([HEAD], max_nodes=2)
        (node,) = membership.update([RayNode(each.ray_id, each.address, 0, 4, roles) for each in (HEAD, THIRD)]).joined
        async with asyncio.TaskGroup() as group:
            await supervisor.add_node(group, membership, node)
        assert short_names(parts.workers.workers) == ["worker-node-0", *["worker-1-0"] * joins]
        hosts = cast("FakeRemoteHosts", parts.remote_hosts)
        assert hosts.prepared == [node.name] * joins
        assert (node in membership.nodes) == joins
        assert hosts.removed == [node.name] * (not joins)
    (event,) = map(json.loads, (tmp_path / "mine" / "events" / "driver.jsonl").read_text().splitlines())
    assert event["kind"] == ("node.up" if joins else "node.refused")
    assert refused in event.get("why", "")


async def test_a_joining_node_is_refused_once_no_worker_keys_are_left(tmp_path: Path) -> None:
    """Over weeks, preemptible machines come and go more often than there are keys."""
    keys = make_run_keys(expected_workers(load_recipe("demo"), [HEAD]))
    with make_parts_on(tmp_path, engines=[HEAD], workers=[HEAD], keys=keys) as parts:
        supervisor = parts.supervisor(ignore_lost_engine)
        nodes = [replace(THIRD, name=f"node-{number}") for number in (64, 65)]
        assert (await supervisor.check_joining_node(nodes[0])).name == "node-64"
        with pytest.raises(UserError, match="go on with longshore cluster --resume"):
            await supervisor.check_joining_node(nodes[1])
