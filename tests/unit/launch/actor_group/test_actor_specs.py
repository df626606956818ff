"""If these fail, a room is told something else than the configuration says, or simulated nodes ask their one machine
for more containers than it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from actors.workers.request_poller import REQUEST_POLL_S
from launch.actor_group.actor_stopper import ACTOR_STOP_S
from launch.actor_group.learner_group import learner_environment, learner_spec
from launch.actor_group.specs.buffer_spec import buffer_spec
from launch.actor_group.specs.engine_spec import engine_spec
from launch.actor_group.specs.judge_spec import judge_engine_spec
from launch.actor_group.specs.scheduler_spec import rollout_request_deadline_s
from launch.actor_group.specs.worker_spec import BufferAddress, evaluation_worker_spec, worker_spec
from launch.config import RunConfig, load_recipe
from launch.data.demo.model import build_demo_model
from launch.doctor.requirements import count_gpus
from launch.hosts.cluster_nodes import ClusterNode, NodeRole
from launch.hosts.placement import (
    WorkerShare,
    actor_run_dir,
    engine_gpus,
    expected_workers,
    place_engines,
    place_evaluation_engine,
    place_judges,
    place_weight_copies,
    place_workers,
    share_docker_engine,
)
from launch.hosts.remote_hosts import weight_cache_settings
from launch.run_records.run_directory import RunDirectory
from protocol.errors import UserError
from protocol.run_directory.actor_names import EVALUATION_WORKER
from protocol.stream import make_run_keys
from protocol.usability import TrajectoryLimits

MODEL = Path("model")
LOCAL_BUFFER = BufferAddress("tcp://127.0.0.1:1", None)
GPUS = ["engine.device=cuda", "learner.device=cuda"]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory.create(tmp_path, "demo", "mine") as made:
        yield made


def here(count: int) -> list[ClusterNode]:
    """Nodes that are simulated on one machine."""
    return [ClusterNode(f"node-{index}", f"ray-{index}", "127.0.0.1") for index in range(count)]


def apart(count: int) -> list[ClusterNode]:
    """Nodes with a machine each."""
    return [ClusterNode(f"node-{index}", f"ray-{index}", f"10.0.0.{index}", remote=index > 0) for index in range(count)]


@pytest.mark.parametrize(
    ("path", "nodes", "homes"),
    [
        ("auto", here(2), []),
        ("delta", here(2), ["node-0"] * 3),
        ("auto", apart(2), ["node-1"]),
        ("delta", apart(2), ["node-0", "node-1", "node-0"]),
    ],
)
def test_an_engine_on_another_machine_reads_the_weight_copies_of_that_machine(
    path: str, nodes: list[ClusterNode], homes: list[str]
) -> None:
    """Otherwise it would request files of another machine, or each engine of a machine would fetch its own copy."""
    config = load_recipe("demo", ["engine.count=3", f"engine.weight_transfer={path}"])
    assert [home.name for home in place_weight_copies(config, nodes).values()] == homes


@pytest.mark.parametrize("path", ["full", "direct"])
def test_weights_that_cannot_reach_another_machine_are_refused_before_anything_starts(path: str) -> None:
    config = load_recipe("demo", ["engine.count=2", f"engine.weight_transfer={path}"])
    with pytest.raises(UserError, match=f"'{path}'.*engine-1 cannot.*'auto'"):
        place_weight_copies(config, apart(2))
    assert place_weight_copies(config, here(2)) == {}


def test_actors_on_another_machine_write_into_a_separate_folder_for_each_start(directory: RunDirectory) -> None:
    """Without this, a resumed run reads files that an earlier start has left there."""
    config, (head, other) = load_recipe("demo", ["cluster.scratch_dir=/scratch"]), apart(2)
    assert actor_run_dir(config, directory, head) == directory.path
    assert actor_run_dir(config, directory, other) == Path("/scratch/mine-1")
    assert engine_spec(config, directory, MODEL, "engine-0", other).run_dir == Path("/scratch/mine-1")
    assert weight_cache_settings(config, directory, other).folder == Path("/scratch/mine-1/copies/node-1")


def test_nodes_get_only_the_actors_that_their_roles_allow() -> None:
    head, engines, workers = apart(3)
    nodes = [
        replace(head, roles=frozenset[NodeRole]()),
        replace(engines, roles=frozenset({NodeRole.ENGINE})),
        replace(workers, roles=frozenset({NodeRole.WORKER})),
    ]
    config = load_recipe("demo", ["engine.count=2"])
    assert {home.name for home in place_engines(config, nodes).values()} == {"node-1"}
    assert place_workers(config, nodes) == {"worker-2-0": nodes[2]}


@pytest.mark.parametrize(("role", "what"), [(NodeRole.ENGINE, "workers"), (NodeRole.WORKER, "an engine")])
def test_a_role_that_no_node_may_have_is_an_error_that_names_it(role: NodeRole, what: str) -> None:
    nodes = [replace(node, roles=frozenset({role})) for node in apart(2)]
    with pytest.raises(UserError, match=f"no node may have {what}"):
        (place_workers if role is NodeRole.ENGINE else place_engines)(load_recipe("demo"), nodes)


def test_workers_of_nodes_that_join_later_have_keys_from_the_beginning() -> None:
    """Without this, the buffer rejects what they send: its list of admitted keys is fixed at its start."""
    config, nodes = load_recipe("demo", ["rollout.workers_per_node=2", "sandbox.capacity_per_node=64"]), apart(3)
    expected = expected_workers(config, nodes)
    assert set(place_workers(config, nodes)) < set(expected)
    assert len(set(expected)) == len(expected)
    assert {"worker-3-0", "worker-3-1", "worker-9-1"} <= set(expected)


ADAPTERS = (
    *("warm_start.enabled=false", "model.path=/some/where", "engine.weight_transfer=adapters"),
    *("lora.rank=8", "lora.targets=o_proj"),
)


def test_adapters_without_base_weights_reach_every_engine_like_full_weights(directory: RunDirectory) -> None:
    """And learner and engines are told the same of them: else no push is ever taken."""
    config = load_recipe("demo", ADAPTERS)
    assert place_weight_copies(config, here(2)) == {}
    assert list(place_weight_copies(load_recipe("demo", [*ADAPTERS, "engine.count=2"]), apart(2))) == ["engine-1"]
    assert learner_spec(config, MODEL).publish_adapters
    spec = engine_spec(config, directory, MODEL, "engine-0", here(1)[0])
    assert spec.lora is not None
    assert (spec.lora.rank, spec.lora.alpha, spec.lora.projections) == (8, 32.0, ("o_proj",))


@pytest.mark.parametrize(("overrides", "most"), [([], 128), (["engine.max_queued=5"], 5)])
def test_the_queue_limit_of_an_engine_is_configured_or_derived_from_its_running_requests(
    directory: RunDirectory, overrides: list[str], most: int
) -> None:
    config = load_recipe("demo", ["engine.max_running=8", *overrides])
    assert engine_spec(config, directory, MODEL, "engine-0", here(1)[0]).settings.queue_limit == most


@pytest.mark.parametrize("count", range(1, 33))
def test_simulated_nodes_share_the_containers_of_one_machine(count: int) -> None:
    config = load_recipe("demo", [f"cluster.nodes={count}"])
    share = share_docker_engine(config, here(count))
    assert 1 <= share.episodes * count <= config.sandbox.capacity_per_node
    assert share.starts == max(1, config.sandbox.start_concurrency // count)


def test_the_workers_of_a_node_share_its_starts() -> None:
    config = load_recipe("demo", ["rollout.workers_per_node=2", "rollout.episodes_per_worker=16"])
    assert share_docker_engine(config, here(1)) == WorkerShare(16, 2)


def test_nodes_on_separate_machines_share_no_capacity() -> None:
    config = load_recipe("demo", ["cluster.nodes=33", "cluster.address=10.0.0.1:6379"])
    assert share_docker_engine(config, apart(33)) == WorkerShare(32, 4)


def test_more_nodes_than_episodes_on_one_machine_are_refused() -> None:
    config = load_recipe("demo", ["cluster.nodes=33", "cluster.address=10.0.0.1:6379"])
    with pytest.raises(UserError, match=r"33 nodes on one machine .*ask for fewer --nodes"):
        share_docker_engine(config, here(33))


def test_engines_are_spread_and_every_node_has_its_workers() -> None:
    config = load_recipe("demo", ["engine.count=3", "rollout.workers_per_node=2", "rollout.episodes_per_worker=16"])
    first, second = apart(2)
    assert place_engines(config, [first, second]) == {"engine-0": first, "engine-1": second, "engine-2": first}
    workers = place_workers(config, [first, second])
    assert workers == {"worker-0-0": first, "worker-0-1": first, "worker-1-0": second, "worker-1-1": second}


def test_gpu_engines_are_placed_where_the_learner_and_other_engines_leave_room() -> None:
    config = load_recipe("demo", [*GPUS, "learner.ranks=2", "learner.tp=2", "engine.count=3", "engine.tp=2"])
    head, bare, large = (replace(node, gpus=gpus) for node, gpus in zip(apart(3), (4, 1, 4), strict=True))
    assert place_engines(config, [head, bare, large]) == {"engine-0": head, "engine-1": large, "engine-2": large}
    assert engine_gpus(config) == 2


def test_a_weight_sender_on_a_gpu_needs_a_separate_gpu() -> None:
    """NCCL knows no two processes on one."""
    config = load_recipe("demo", [*GPUS, "engine.weight_transfer=direct", "engine.broadcast_device=cuda"])
    (alone,) = apart(1)
    assert [*place_engines(config, [replace(alone, gpus=3)])] == ["engine-0"]
    with pytest.raises(UserError, match="1 learner ranks and a sender on node-0"):
        place_engines(config, [replace(alone, gpus=2)])


def test_too_few_gpus_are_refused_with_an_alternative() -> None:
    config = load_recipe("demo", [*GPUS, "engine.count=2"])
    (alone,) = apart(1)
    says = r"too few GPUs \(node-0 2\) for 1 learner ranks on node-0 and 2 engines with 1 each.*placement=colocated"
    with pytest.raises(UserError, match=says):
        place_engines(config, [replace(alone, gpus=2)])


def test_a_gpu_is_reserved_for_the_engine_of_online_evaluations() -> None:
    """Without this, the first evaluation finds no free GPU, a hundred steps into the run."""
    config = load_recipe("demo", [*GPUS, "evaluation.every_steps=4"])
    (alone,) = apart(1)
    assert [*place_engines(config, [replace(alone, gpus=3)])] == ["engine-0"]
    assert place_evaluation_engine(config, [replace(alone, gpus=3)]).gpus == 3
    with pytest.raises(UserError, match=r"too few GPUs.*one more for online evaluations.*evaluation\.every_steps=0"):
        place_engines(config, [replace(alone, gpus=2)])
    without = load_recipe("demo", GPUS)
    assert [*place_engines(without, [replace(alone, gpus=2)])] == ["engine-0"]
    with pytest.raises(UserError, match="too few GPUs"):
        place_evaluation_engine(without, [replace(alone, gpus=2)])


OWN_JUDGE = ("judge.enabled=true", "judge.engines=2", "learner.advantage=turn")


def test_the_engines_of_a_judge_get_gpus_of_their_own() -> None:
    config = load_recipe("demo", [*GPUS, *OWN_JUDGE, "judge.model=/judge", "judge.tp=2", "evaluation.every_steps=4"])
    head, large = (replace(node, gpus=gpus) for node, gpus in zip(apart(2), (3, 4), strict=True))
    assert (place_engines(config, [head, large]), count_gpus(config)) == ({"engine-0": head}, 7)
    assert place_judges(config, [head, large]) == {"judge-0": large, "judge-1": large}
    says = r"too few GPUs.*1 engines with 1 each, 2 of the judge with 2 each \(none with judge\.url\), and one more"
    with pytest.raises(UserError, match=says):
        place_judges(config, [head, replace(large, gpus=3)])


def test_a_judge_has_gpus_beside_a_device_that_learner_and_engines_share_and_none_on_the_cpu() -> None:
    sharing = ("cluster.placement=colocated", "run.mode=sync", *OWN_JUDGE, "judge.model=/judge")
    (alone,) = (replace(node, gpus=3) for node in apart(1))
    config = load_recipe("demo", [*GPUS, *sharing])
    assert (place_judges(config, [alone]), count_gpus(config)) == ({"judge-0": alone, "judge-1": alone}, 3)
    on_cpu = load_recipe("demo", sharing)
    assert (place_judges(on_cpu, here(1)), count_gpus(on_cpu)) == (dict.fromkeys(("judge-0", "judge-1"), here(1)[0]), 0)


def test_a_judge_behind_a_url_needs_no_engine() -> None:
    config = load_recipe("demo", [*GPUS, *OWN_JUDGE, "judge.url=http://127.0.0.1:1"])
    assert (place_judges(config, [replace(apart(1)[0], gpus=2)]), count_gpus(config)) == ({}, 2)


def test_the_engines_of_a_judge_serve_its_folder_with_its_context_and_no_seeds(
    directory: RunDirectory, tmp_path: Path
) -> None:
    folder = tmp_path / "judge"
    build_demo_model(folder, load_recipe("demo", ["model.layers=1"]).model, 0, positions=2048)
    config = load_recipe("demo", [*OWN_JUDGE, f"judge.model={folder}", "judge.tp=2", "engine.max_total_tokens=9000"])
    (node,) = here(1)
    spec = judge_engine_spec(config, directory, folder, "judge-0", node)
    assert (spec.model_path, spec.settings.tp, spec.context_length, spec.reserved_gpus) == (str(folder), 2, 2042, 0)
    gpus = load_recipe("demo", [*GPUS, *OWN_JUDGE, f"judge.model={folder}", "engine.deterministic=true"])
    served = judge_engine_spec(gpus, directory, folder, "judge-0", node)
    assert (served.reserved_gpus, served.settings.deterministic) == (1, False), "votes of one seed would be the same"
    workers = WorkerShare(4, 1)
    own = worker_spec(
        config, directory, MODEL, "worker-0-0", node, buffer=LOCAL_BUFFER, share=workers, judge_folder=folder
    ).reward.judge
    assert own is not None
    assert (own.model_path, own.context_tokens) == (str(folder), 2042)
    assert evaluation_worker_spec(config, directory, MODEL, node, buffer=LOCAL_BUFFER).reward.judge is None


def test_the_worker_of_online_evaluations_takes_no_episode_slot_from_training(directory: RunDirectory) -> None:
    config, (node,) = load_recipe("demo"), here(1)
    keys = make_run_keys([EVALUATION_WORKER])
    spec = evaluation_worker_spec(config, directory, MODEL, node, buffer=BufferAddress("tcp://127.0.0.1:1", keys))
    share = share_docker_engine(config, [node])
    assert (spec.name, spec.online_evaluation, spec.episodes, spec.pool.capacity) == (EVALUATION_WORKER, True, 4, 4)
    assert spec.episodes + share.episodes <= config.sandbox.capacity_per_node


def test_a_colocated_engine_needs_no_separate_gpu() -> None:
    config = load_recipe("demo", [*GPUS, "cluster.placement=colocated", "run.mode=sync"])
    (alone,) = (replace(node, gpus=1) for node in apart(1))
    assert (engine_gpus(config), place_engines(config, [alone])) == (0, {"engine-0": alone})


def test_a_buffer_reachable_from_other_machines_admits_only_the_workers_of_the_run(directory: RunDirectory) -> None:
    config, nodes = load_recipe("demo"), apart(2)
    homes, share = place_workers(config, nodes), share_docker_engine(config, nodes)
    keys = make_run_keys(homes)
    buffer = buffer_spec(config, directory, TrajectoryLimits(8, 8), nodes[0], keys)
    spec = [
        worker_spec(
            config, directory, MODEL, name, home, buffer=BufferAddress("tcp://10.0.0.0:7000", keys), share=share
        )
        for name, home in homes.items()
    ]
    assert (buffer.host, buffer.curve) == ("10.0.0.0", keys.server)
    assert {worker.curve.public for worker in spec if worker.curve} == keys.server.clients


def test_a_worker_owns_its_containers_and_stops_them_before_its_own_stop_deadline(directory: RunDirectory) -> None:
    share, (node,) = WorkerShare(5, 2), here(1)
    spec = worker_spec(load_recipe("demo"), directory, MODEL, "worker-0-0", node, buffer=LOCAL_BUFFER, share=share)
    assert (spec.episodes, spec.pool.capacity, spec.pool.start_concurrency) == (5, 5, 2)
    assert (spec.pool.name, spec.pool.run_id, spec.curve) == ("mine/worker-0-0", "mine", None)
    assert spec.pool.drain_s < ACTOR_STOP_S


@pytest.mark.parametrize(("max_staleness", "every", "lag"), [(4, 2, 2), (4, 3, 1), (0, 1, 1)])
def test_workers_skip_an_engine_with_weights_older_than_the_staleness_bound_allows(
    directory: RunDirectory, max_staleness: int, every: int, lag: int
) -> None:
    """With η = 0 too, engines are given new weights one after the other."""
    mode = "async" if max_staleness else "sync"
    keys = [f"staleness.max_staleness={max_staleness}", f"learner.publish_every={every}", f"run.mode={mode}"]
    config, share, (node,) = load_recipe("demo", keys), WorkerShare(5, 2), here(1)
    spec = worker_spec(config, directory, MODEL, "worker-0-0", node, buffer=LOCAL_BUFFER, share=share)
    assert spec.max_versions_behind == lag


@pytest.mark.parametrize(("overrides", "harness"), [([], ""), (["agent.harness=agent --go"], "agent --go")])
def test_a_configured_harness_replaces_the_agent(directory: RunDirectory, overrides: list[str], harness: str) -> None:
    config, share, (node,) = load_recipe("demo", overrides), WorkerShare(5, 2), here(1)
    spec = worker_spec(config, directory, MODEL, "worker-0-0", node, buffer=LOCAL_BUFFER, share=share)
    assert spec.harness.harness == harness


@pytest.mark.parametrize("send_s", [1.0, 600.0, 5000.0])
def test_a_rollout_request_outlives_the_longest_time_that_its_worker_may_take(send_s: float) -> None:
    """Otherwise the scheduler would reissue what a worker is still sending, and the work would be done twice."""
    config = load_recipe("demo", [f"rollout.send_deadline_s={send_s}"])
    assert rollout_request_deadline_s(config) > REQUEST_POLL_S + config.rollout.episode_deadline_s + send_s


def test_requests_may_wait_for_the_learners_turn_on_a_shared_device(directory: RunDirectory) -> None:
    """Without this, a turn that is longer than a server's start fails every episode that waits for it."""
    share, (node,) = WorkerShare(5, 2), here(1)
    waits_s: list[float] = []
    for placement in ("separate", "colocated"):
        config = load_recipe("demo", ["run.mode=sync", f"cluster.placement={placement}"])
        spec = worker_spec(config, directory, MODEL, "worker-0-0", node, buffer=LOCAL_BUFFER, share=share)
        waits_s.append(spec.restart_timeout_s)
        engine = engine_spec(config, directory, MODEL, "engine-0", node)
        assert engine.offloads_memory is (placement == "colocated")
    assert waits_s == [config.engine.start_timeout_s, config.engine.start_timeout_s + config.learner.call_timeout_s]


def test_episodes_in_flight_are_bounded_by_the_engines_unless_configured() -> None:
    assert RunConfig().in_flight == 64
    assert load_recipe("demo", ["rollout.in_flight=5"]).in_flight == 5


@pytest.mark.parametrize(("device", "hidden"), [("cpu", {"CUDA_VISIBLE_DEVICES": ""}), ("cuda", {})])
def test_a_learner_on_the_cpu_sees_no_gpu(device: str, hidden: dict[str, str]) -> None:
    config = load_recipe("demo", [f"learner.device={device}"])
    assert learner_spec(config, Path("model")).trainer.device == device
    assert learner_environment(config.learner) == {"OMP_NUM_THREADS": "1"} | hidden
