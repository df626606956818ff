"""If these fail, what a dead worker left is not swept, nobody knows which process did not stop, or a run waits for a
machine that is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actors.engines.interface import Engine
from actors.engines.messages import EngineStartError, EngineState
from actors.engines.settings import EngineSpec
from actors.runtime.remote import ActorOptions, Remote, short_actor_name
from actors.runtime.remote_errors import RemoteError
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.weight_transport.host_cache import HostWeightCache
from actors.weight_transport.source import WeightSource
from actors.workers.rollout_worker import RolloutWorker
from actors.workers.settings import WorkerSpec
from launch.actor_group import group as group_module
from launch.actor_group import health_monitor
from launch.actor_group.group import ActorGroup
from launch.actor_group.learner_group import LearnerGroup
from launch.config import load_recipe
from launch.doctor.finding import CheckName, Finding, failed, warning
from launch.hosts.cluster_nodes import ClusterNode, NodeRole, RayNode
from launch.hosts.membership import NodeMembership
from launch.hosts.node_agent import LogSync
from launch.hosts.node_checks import FindingsByNode
from launch.hosts.placement import expected_workers
from launch.hosts.remote_hosts import RemoteHost, RemoteHosts
from launch.run_records.run_directory import RunDirectory
from protocol.errors import InfraError, UserError
from protocol.events import EventLog
from protocol.stream import make_run_keys
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from sandbox.pool.sweep import SETTLE_S
from tests.support.local_actors import LocalRemote


@contextmanager
def a_fleet(folder: Path) -> Generator[ActorGroup]:
    with RunDirectory.create(folder, "demo", "mine") as directory:
        events = EventLog(directory.path, "driver", "node-0")
        yield ActorGroup(load_recipe("demo"), directory, [], events, model_path=folder, tasks={}, training_ids=())
        events.close()


class FakeWorker:
    """Its process dies once in the middle of its work."""

    def __init__(self, deaths: int) -> None:
        self.name, self._deaths = "mine/1/worker-0-0", deaths

    async def call(self, *_: object) -> None:
        if self._deaths:
            self._deaths -= 1
            raise RemoteError(self.name, "its process died")


async def test_a_worker_that_is_dead_when_training_ends_does_not_end_the_run(tmp_path: Path) -> None:
    with a_fleet(tmp_path) as made:
        made.workers = (cast("Remote[RolloutWorker]", FakeWorker(deaths=1)),)
        await made.cancel_training()


class Examined:
    """An actor that notes what it is told in a list that all of them share."""

    def __init__(self, name: str, told: list[str], *, fails: bool = False) -> None:
        self.name, self._short, self._told, self._fails = name, name.rpartition("/")[2], told, fails
        self._working = asyncio.Event()

    async def call(self, method: Callable[..., object], *given: object) -> object:
        if method is RolloutWorker.run:
            self._told.append(f"{self._short} runs")
            await self._working.wait()
        elif method is Engine.start:
            manifest = cast("WeightManifest", given[0])
            self._told.append(f"{self._short} starts on {manifest.version} of {manifest.path}")
            if self._fails:
                raise EngineStartError("no memory")
        elif method in {RolloutWorker.stop, Engine.stop}:
            self._told.append(f"{self._short} stops")
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
def examiners(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str, fails: bool = False
) -> Generator[tuple[ActorGroup, list[str], list[tuple[str, tuple[object, ...]]]]]:
    """A fleet, what its actors are told, and (name, arguments) of those that are spawned."""
    told, spawned = list[str](), list[tuple[str, tuple[object, ...]]]()

    def spawn(_: object, options: ActorOptions, *given: object) -> Examined:
        actor = Examined(options.name, told, fails=fails)
        spawned.append((short_actor_name(actor.name), given))
        return actor

    monkeypatch.setattr(health_monitor, "_LOOK_S", 0.0)
    monkeypatch.setattr(health_monitor, "restart_actor", lambda actor: told.append(f"{actor.name} is started again"))
    monkeypatch.setattr(group_module, "spawn_actor", spawn)
    monkeypatch.setattr(
        group_module, "kill_actor", lambda actor: told.append(f"{short_actor_name(actor.name)} is killed")
    )
    with RunDirectory.create(folder, "demo", "mine") as directory:
        events = EventLog(directory.path, "driver", "node-0")
        node = ClusterNode("node-0", "ray-0", "127.0.0.1")
        made = ActorGroup(
            load_recipe("demo", overrides), directory, [node], events, model_path=folder, tasks={}, training_ids=()
        )
        made._endpoint, made.engines = "tcp://127.0.0.1:1", (cast("Remote[Engine]", Examined("engine-0", told)),)
        made.scheduler = cast("Remote[RolloutScheduler]", Examined("scheduler", told))
        made.workers, made._keys = (cast("Remote[RolloutWorker]", Examined("worker-0-0", told)),), None
        made._node_of_actor |= {"worker-0-0": node, "engine-0": node}
        yield made, told, spawned
        events.close()


EXAMINED = WeightManifest(WeightVersion(8), 4, NO_VERSION, "/weights", "", 0, 0)


async def test_an_evaluation_has_an_engine_and_a_worker_of_its_own_which_go_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with examiners(tmp_path, monkeypatch) as (made, told, spawned):
        async with made.evaluation_actors(EXAMINED):
            while "evaluation-worker-1 runs" not in told:  # noqa: ASYNC110  no event tells
                await asyncio.sleep(0)
        engine, worker = spawned
        assert (engine[0], worker[0]) == ("evaluation-engine-1", "evaluation-worker-1")
        settings, _, engines = worker[1]
        assert cast("WorkerSpec", settings).online_evaluation
        assert [short_actor_name(each.name) for each in cast("tuple[Examined, ...]", engines)] == [
            "evaluation-engine-1"
        ]
        assert told == [
            "evaluation-engine-1 starts on 8 of /weights",
            "evaluation-worker-1 runs",
            "evaluation-worker-1 stops",
            "evaluation-engine-1 stops",
            "evaluation-worker-1 is killed",
            "evaluation-engine-1 is killed",
        ]
        async with made.evaluation_actors(EXAMINED):
            pass
        assert [name for name, _ in spawned[2:]] == ["evaluation-engine-2", "evaluation-worker-2"], (
            "a name may still be another's"
        )


async def test_on_a_shared_device_an_evaluation_starts_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = ("cluster.placement=colocated", "run.mode=sync")
    with examiners(tmp_path, monkeypatch, *shared) as (made, told, spawned):
        async with made.evaluation_actors(EXAMINED):
            pass
        ((name, (_, _, engines)),) = spawned
        assert (name, engines) == ("evaluation-worker-1", made.engines)
        assert not [each for each in told if each.startswith("engine")]


async def test_what_an_evaluation_could_not_start_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with examiners(tmp_path, monkeypatch, fails=True) as (made, told, _):
        with pytest.raises(EngineStartError):
            async with made.evaluation_actors(EXAMINED):
                raise AssertionError
        assert told[-2:] == ["evaluation-worker-1 is killed", "evaluation-engine-1 is killed"]
    with examiners(tmp_path / "full", monkeypatch, "sandbox.capacity_per_node=32") as (made, told, spawned):
        with pytest.raises(UserError, match="leaves no sandbox beside training's"):
            async with made.evaluation_actors(EXAMINED):
                raise AssertionError
        assert spawned == []


class FakeCopies:
    """A machine's copies of weights."""

    def __init__(self, *, never_come: bool = False) -> None:
        self.alone, self.asked, self._never_come = list[bool](), asyncio.Event(), never_come

    async def fetch_version(
        self, manifest: WeightManifest, served: WeightVersion, *, anew: bool = False, alone: bool = False
    ) -> WeightManifest:
        self.alone.append(alone)
        self.asked.set()
        if self._never_come:
            await asyncio.Event().wait()
        return replace(manifest, path="/copy")


async def test_an_evaluation_on_another_machine_reads_weights_there_and_fails_with_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose_engine(name: str) -> None: ...

    async def examined() -> None:
        async with made.evaluation_actors(EXAMINED):
            await made._remove_node(SECOND, lose_engine)
            await asyncio.Event().wait()

    copies = FakeCopies()
    with examiners(tmp_path, monkeypatch) as (made, told, spawned):
        made._nodes = [HEAD, replace(SECOND, roles=frozenset({NodeRole.ENGINE}))]
        made._remote_hosts.hosts[SECOND.address] = RemoteHost(
            SECOND, cast("LogSync", None), LocalRemote(cast("HostWeightCache", copies)), Path("/model")
        )
        with pytest.raises(InfraError, match=r"node-1 \(10.0.0.1\), where the evaluation was, is gone"):
            await examined()
        ((_, (settings, _)), _) = spawned
        assert cast("EngineSpec", settings).model_path == "/model"
        assert told[0] == "evaluation-engine-1 starts on 8 of /copy"
        assert copies.alone == [True], "no broadcast waits for it"
        assert not made.weight_transport.copies
        with pytest.raises(UserError, match="which has the engine for evaluations, is gone"):
            made.require_evaluation_capacity()


async def test_an_evaluation_on_a_machine_that_has_lost_its_copies_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose other node is gone: no run ends for it."""
    with examiners(tmp_path, monkeypatch) as (made, _, spawned):
        made._nodes = [HEAD, replace(SECOND, roles=frozenset({NodeRole.ENGINE}))]
        with pytest.raises(InfraError, match=r"machine of node-1 \(10.0.0.1\) is gone with another node"):
            async with made.evaluation_actors(EXAMINED):
                raise AssertionError
        assert spawned == []


async def test_an_evaluation_whose_engine_never_starts_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of training waits for it."""
    monkeypatch.setattr(Examined, "pid", lambda _: asyncio.Event().wait())
    monkeypatch.setattr(group_module, "ACTOR_START_S", 0.01)
    with (
        examiners(tmp_path, monkeypatch) as (made, *_),
        pytest.raises(InfraError, match=r"has no process after.*`ray status`"),
    ):
        async with made.evaluation_actors(EXAMINED):
            raise AssertionError


async def test_an_evaluation_whose_node_goes_while_its_engine_starts_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose_engine(name: str) -> None: ...

    async def leave() -> None:
        await copies.asked.wait()
        await made._remove_node(SECOND, lose_engine)

    copies = FakeCopies(never_come=True)
    with examiners(tmp_path, monkeypatch) as (made, *_):
        made._nodes = [
            replace(HEAD, roles=frozenset({NodeRole.WORKER})),
            replace(SECOND, roles=frozenset({NodeRole.ENGINE})),
        ]
        made._remote_hosts.hosts[SECOND.address] = RemoteHost(
            SECOND, cast("LogSync", None), LocalRemote(cast("HostWeightCache", copies)), Path("/model")
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(leave())
            with pytest.raises(InfraError, match="where the evaluation was, is gone"):
                async with made.evaluation_actors(EXAMINED):
                    raise AssertionError


async def test_no_broadcast_waits_for_a_machine_that_is_gone(tmp_path: Path) -> None:
    """Else each version that comes later does so by its last way, and late."""

    class Source:
        """Fake: notes how many hosts it waits for."""

        def __init__(self) -> None:
            self.hosts: list[int] = []

        async def set_host_count(self, hosts: int) -> None:
            self.hosts.append(hosts)

    def on(node: ClusterNode, name: str, cls: object, /, *args: object, **kwargs: object) -> LocalRemote[Any]:
        return LocalRemote(source if cls is WeightSource else SimpleNamespace(fetch_model=lambda _: "/model"), name)

    source = Source()
    with a_fleet(tmp_path) as made:
        abroad = RemoteHosts(
            made._config, made._directory, made._events, model=tmp_path, spawn_on=on, token=made._token, settled_s=60.0
        )
        await abroad.prepare_nodes([HEAD, SECOND, THIRD], {"engine-0": SECOND, "engine-1": HEAD})
        await abroad.exclude_from_broadcast(THIRD)
        await abroad.exclude_from_broadcast(SECOND)
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
    with a_fleet(tmp_path) as made:
        made.engines = (cast("Remote[Engine]", engine),)
        with pytest.RaisesGroup(EngineStartError) if failures > 1 else nullcontext():
            await made.start_engines(WeightManifest(WeightVersion(0), 0, NO_VERSION, "", "", 0, 0))
    assert engine.tries == tries


@pytest.mark.parametrize("deaths", [0, 1])
async def test_the_end_sweeps_for_as_long_as_the_daemon_may_work_for_a_dead_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    swept: list[tuple[str, float]] = []

    async def sweep_run(run_id: str, for_s: float) -> int:
        swept.append((run_id, for_s))
        return 0

    monkeypatch.setattr(group_module, "sweep_run", sweep_run)
    monkeypatch.setattr(health_monitor, "_RETRY_S", 0.0)
    with a_fleet(tmp_path) as made:
        await made._health_monitor.keep_worker_running(cast("Remote[RolloutWorker]", FakeWorker(deaths)), {})
        await made._sweep_containers(made._settle_s)
    assert [run_id for run_id, _ in swept] == ["mine"] * deaths
    assert all(0 < for_s <= SETTLE_S for _, for_s in swept)


async def test_an_actor_that_does_not_stop_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "ACTOR_STOP_S", 0.01)
    hangs, stops = (
        cast("Remote[RolloutWorker]", Stopping(name, seconds)) for name, seconds in (("hangs", 60), ("stops", 0))
    )
    with a_fleet(tmp_path) as made:
        assert await made._stop_actors([hangs, stops], RolloutWorker.stop) == [hangs]
    (said,) = (tmp_path / "mine" / "events" / "driver.jsonl").read_text().splitlines()
    assert json.loads(said)["why"] == "hangs did not answer within 0.01 s"


class NotedRank:
    def __init__(self) -> None:
        self.told: list[tuple[int, float]] = []

    def set_learning_rate(self, step: int, lr: float) -> None:
        self.told.append((step, lr))


async def test_a_rate_that_is_asked_for_is_told_to_the_learner_that_is_there(tmp_path: Path) -> None:
    rank = NotedRank()
    with a_fleet(tmp_path) as made:
        made._newest_learners = LearnerGroup((LocalRemote(rank, "run/1.1/learner-0"),), 60.0)
        await made.set_learning_rate_from(5, 1e-4)
        await made.set_learning_rate_from(9, 1e-5)
        assert rank.told == [(5, 1e-4), (9, 1e-5)]
        assert made._lr_changes == ((5, 1e-4), (9, 1e-5)), "one that is started again is told them too"


HEAD, SECOND, THIRD = (
    ClusterNode(f"node-{index}", f"ray-{index}", f"10.0.0.{index}", remote=index > 0) for index in range(3)
)


class FakeConductor:
    """Fake: notes whose tickets are to be issued again."""

    def __init__(self) -> None:
        self.gone_for_good: list[str] = []

    async def remove_worker(self, worker: str) -> None:
        self.gone_for_good.append(worker)


class FakeRemoteHosts:
    """Fake: all that other machines need is there at once."""

    def __init__(self) -> None:
        self.hosts: dict[str, object] = {}
        self.settled: list[str] = []
        self.forgotten: list[str] = []

    async def prepare_nodes(self, nodes: Sequence[ClusterNode], copy_homes: Mapping[str, ClusterNode]) -> None:
        self.settled += [node.name for node in nodes if node.remote]

    async def exclude_from_broadcast(self, node: ClusterNode) -> None: ...

    def remove_node(self, node: ClusterNode) -> None:
        self.forgotten.append(node.name)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the actors that were."""
    names = list[str]()

    def kill(actor: Remote[object]) -> None:
        names.append(actor.name)

    monkeypatch.setattr(group_module, "kill_actor", kill)
    return names


@contextmanager
def a_fleet_on(folder: Path, engines: Sequence[ClusterNode], workers: Sequence[ClusterNode]) -> Generator[ActorGroup]:
    with a_fleet(folder) as made:
        made._nodes, made._keys = [HEAD, SECOND], None
        made._remote_hosts = cast("RemoteHosts", FakeRemoteHosts())
        made.scheduler = LocalRemote(FakeConductor())
        made.engines = tuple(LocalRemote(None, f"engine-{node.name}") for node in engines)
        made.workers = tuple(LocalRemote(None, f"worker-{node.name}") for node in workers)
        made._node_of_actor = {f"engine-{node.name}": node for node in engines}
        made._node_of_actor |= {f"worker-{node.name}": node for node in workers}
        yield made


async def test_a_node_that_is_gone_is_waited_for_by_nobody(tmp_path: Path, killed: list[str]) -> None:
    """Neither here nor by another process: Ray would start what it had as soon as its places are back."""
    lost: list[str] = []

    async def lose_engine(name: str) -> None:
        lost.append(name)

    with a_fleet_on(tmp_path, engines=[HEAD, SECOND], workers=[HEAD, SECOND]) as made:
        async with asyncio.TaskGroup() as group:
            waits = group.create_task(asyncio.Event().wait())
            made._tasks[SECOND.name].append(cast("asyncio.Task[None]", waits))
            await made._remove_node(SECOND, lose_engine)
        assert waits.cancelled()
        assert [each.name for each in (*made.engines, *made.workers)] == ["engine-node-0", "worker-node-0"]
        conductor = cast("LocalRemote[RolloutScheduler]", made.scheduler).target
        assert cast("FakeConductor", conductor).gone_for_good == ["worker-1-0"]
    assert lost == ["engine-node-1"]
    assert killed == ["worker-node-1", "engine-node-1"]


class Unscheduled:
    """Fake: an engine that Ray starts once its place is there, until it is killed or its node ends."""

    def __init__(self) -> None:
        self.asked, self.ended = asyncio.Event(), asyncio.Event()

    async def start(self, manifest: WeightManifest) -> None:
        self.asked.set()
        await self.ended.wait()
        raise RemoteError("engine-node-1", "its node ended")


class Started:
    """Fake: an engine that starts at once."""

    async def start(self, manifest: WeightManifest) -> None: ...


@pytest.mark.parametrize("told_first", ["driver", "caller"])
async def test_an_engine_whose_node_goes_while_it_starts_does_not_keep_the_others_from_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told_first: str
) -> None:
    """Of many machines one fails in the minutes in which servers start."""

    async def lose_engine(name: str) -> None: ...

    async def leave() -> None:
        await gone.asked.wait()
        if told_first == "caller":
            gone.ended.set()
            for _ in range(20):
                await asyncio.sleep(0)
        await made._remove_node(SECOND, lose_engine)

    gone = Unscheduled()
    monkeypatch.setattr(group_module, "kill_actor", lambda _: gone.ended.set())
    with a_fleet_on(tmp_path, engines=[HEAD, SECOND], workers=[HEAD]) as made:
        made.engines = (LocalRemote(Started(), "engine-node-0"), LocalRemote(gone, "engine-node-1"))
        async with asyncio.TaskGroup() as group:
            group.create_task(made.start_engines(EXAMINED))
            group.create_task(leave())
        assert [engine.name for engine in made.engines] == ["engine-node-0"]


async def test_an_engine_that_is_lost_without_its_node_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "_NEWS_S", 0.01)
    lost = Unscheduled()
    lost.ended.set()
    with a_fleet_on(tmp_path, engines=[SECOND], workers=[HEAD]) as made:
        made.engines = (LocalRemote(lost, "engine-node-1"),)
        with pytest.RaisesGroup(RemoteError):
            await made.start_engines(EXAMINED)


@pytest.mark.parametrize(
    ("engines", "workers", "what"), [([SECOND], [HEAD, SECOND], "an engine"), ([HEAD], [SECOND], "agents")]
)
@pytest.mark.usefixtures("killed")
async def test_a_run_that_nobody_can_work_for_any_more_ends_and_says_what_to_start(
    tmp_path: Path, engines: list[ClusterNode], workers: list[ClusterNode], what: str
) -> None:
    async def lose_engine(name: str) -> None: ...

    said = f"node-1.*is gone, and no other node has {what}"
    with a_fleet_on(tmp_path, engines, workers) as made, pytest.raises(InfraError, match=said):
        await made._remove_node(SECOND, lose_engine)


@pytest.mark.parametrize(
    ("finding", "roles", "refused"),
    [
        (None, "", ""),
        (warning(CheckName.CLOCK, "nobody keeps it right", "set it by NTP"), "", ""),
        (failed(CheckName.GPU, "no GPU", "take another"), "", ""),
        (failed(CheckName.DOCKER, "no Docker engine answers", "run `make setup`"), "", "engine answers: run `make"),
        (failed(CheckName.VERSIONS, "other code", "bring both to the same commit"), "", "other code: bring both"),
        (None, "engine", "its label longshore/roles=engine keeps agents away"),
    ],
)
async def test_a_node_that_joins_gets_agents_if_it_has_what_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finding: Finding | None, roles: str, refused: str
) -> None:
    """And whoever started it reads what it lacks."""
    joins = not refused

    async def findings(node: ClusterNode) -> FindingsByNode:
        return {} if finding is None else {node.name: (finding,)}

    class Idle:
        """Fake: its process lives, and it works until it is stopped."""

        async def run(self, tasks: object) -> None: ...

    def worker(name: str, home: ClusterNode) -> Remote[RolloutWorker]:
        made._node_of_actor[name] = home
        return LocalRemote(Idle(), name)

    with a_fleet_on(tmp_path, engines=[HEAD], workers=[HEAD]) as made:
        monkeypatch.setattr(made, "_findings", findings)
        monkeypatch.setattr(made, "_spawn_worker", worker)
        monkeypatch.setattr(made._health_monitor, "watch_liveness", lambda _: asyncio.sleep(0))
        roster = NodeMembership([HEAD], most=2)
        (node,) = roster.update([RayNode(each.ray_id, each.address, 0, 4, roles) for each in (HEAD, THIRD)]).joined
        async with asyncio.TaskGroup() as group:
            await made._add_node(group, roster, node)
        assert [each.name for each in made.workers] == ["worker-node-0", *["worker-1-0"] * joins]
        assert cast("FakeRemoteHosts", made._remote_hosts).settled == [node.name] * joins
        assert (node in roster.nodes) == joins
        assert cast("FakeRemoteHosts", made._remote_hosts).forgotten == [node.name] * (not joins)
    (told,) = map(json.loads, (tmp_path / "mine" / "events" / "driver.jsonl").read_text().splitlines())
    assert told["kind"] == ("node.up" if joins else "node.refused")
    assert refused in told.get("why", "")


async def test_a_node_for_whose_agents_there_are_no_keys_does_not_end_the_run(tmp_path: Path) -> None:
    """As many as machines that others may take back come and go in weeks."""
    with a_fleet_on(tmp_path, engines=[HEAD], workers=[HEAD]) as made:
        made._keys = make_run_keys(expected_workers(made._config, [HEAD]))
        nodes = [replace(THIRD, name=f"node-{number}") for number in (64, 65)]
        assert (await made._check_joining_node(nodes[0])).name == "node-64"
        with pytest.raises(UserError, match="go on with --resume"):
            await made._check_joining_node(nodes[1])
