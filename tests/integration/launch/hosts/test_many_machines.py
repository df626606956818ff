"""Machines with addresses, a /tmp and a shared memory of their own, on a switch: a run's directory is on the first one
alone.  If these fail, nobody can run on more than one machine, or a cable, a machine or the head that dies costs a run.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.control.ctl import parse_request
from launch.control.request_client import submit_and_wait
from launch.control.requests import ControlAction
from launch.hosts.cluster_nodes import ROLES_LABEL
from launch.hosts.ray_environment import CLUSTER_RAY_ENVIRONMENT
from tests.support.network import machines
from tests.support.network.machines import Machine
from tests.support.runs.cluster_runs import MiniRun, MiniRuns, eventually
from tests.support.runs.run_resources import DEADLINE_S
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [
    pytest.mark.docker,
    pytest.mark.ray,
    pytest.mark.sglang,
    pytest.mark.chaos,
    pytest.mark.timeout(5400),
    pytest.mark.skipif(machines.why_unavailable() is not None, reason=str(machines.why_unavailable())),
]

NO_EVALUATION = ("--set", "evaluation.tasks_per_family=0")
CUT_S = 30.0
WAIT_S = 1800.0
"""For anything; who starves on a busy machine is late, and has lost nothing."""
SETTINGS = CLUSTER_RAY_ENVIRONMENT | {"RAY_gcs_rpc_server_reconnect_timeout_s": "60"}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Machine]]:
    with machines.machines(3, tmp_path, SETTINGS) as made:
        yield made


def start(mini_runs: MiniRuns, name: str, head: Machine, cluster: str, *options: str) -> MiniRun:
    words = ("--address", cluster, "--nodes", "2", *NO_EVALUATION, *options)
    return mini_runs.start(name, *words, env=head.env, prefix=head.prefix())


def episodes(run: MiniRun, node: str, kind: str) -> list[str]:
    return [event["trajectory"] for event in run.events(kind) if event["node"] == node]


def running(run: MiniRun, node: str) -> set[str]:
    """Episodes of ``node`` that have begun and not ended, as far as it is known here."""
    ended = {each for kind in ("episode.finished", "episode.cancelled") for each in episodes(run, node, kind)}
    return set(episodes(run, node, "episode.started")) - ended


def all_told(run: MiniRun, machine: Machine) -> bool:
    """Whether what is written on ``machine`` is here."""
    assert machine.files is not None
    there = machine.files.glob(f"longshore/{run.path.name}-*/events/*.jsonl")
    return all(size_of(run.path / "events" / file.name) == size_of(file) for file in there)


def size_of(file: Path) -> int:
    """0 where there is none: what is empty is brought by nobody."""
    return file.stat().st_size if file.exists() else 0


def stopped_at_work(run: MiniRun, machine: Machine, node: str, worker: int) -> set[str]:
    """Stop a worker, and let it go on where it has nothing under way."""
    os.kill(worker, signal.SIGSTOP)
    eventually("what it said last", lambda: all_told(run, machine), WAIT_S)
    if not (held := running(run, node)):
        os.kill(worker, signal.SIGCONT)
    return held


def assert_no_token(head: Machine, run: MiniRun, *others: Machine) -> None:
    """Who reads a run's files or Ray's logs may not join the cluster for that."""
    token = head.env["RAY_AUTH_TOKEN"].encode()
    folders = [run.path, head.session, *(other.files for other in others if other.files is not None)]
    with_token = [
        path for folder in folders for path in folder.rglob("*") if path.is_file() and token in path.read_bytes()
    ]
    assert not with_token


def test_a_run_on_several_machines_survives_a_cut_cable_a_joining_and_a_dying_machine(
    three: list[Machine], mini_runs: MiniRuns
) -> None:
    """The engine is on the second machine, so that weights travel; agents are on all of them."""
    head, second, third = three
    cluster = head.start_head("--labels", f"{ROLES_LABEL}=worker")
    second.join(cluster, "--labels", f"{ROLES_LABEL}=engine.worker")
    only_there = ("--set", "cluster.max_nodes=3", "--steps", "500")
    run = start(mini_runs, "machines", head, cluster, *only_there)
    run.wait_step(2, WAIT_S)
    assert {event["name"] for event in run.events("host.ready")} == {"node-1"}
    assert not any((second.files or Path()).glob("pytest-of-root/**")), "the second machine sees the first one's files"

    second.disconnect()
    time.sleep(CUT_S)
    second.reconnect()
    after_cut = run.events("learner.step")[-1]["step"]
    run.wait_step(after_cut + 2, WAIT_S)
    assert not run.events("node.down"), "a cable that was mended in time cost its machine"

    third.join(cluster)
    joined = run.wait_event(
        "the third machine's first episode",
        "episode.finished",
        lambda event: event["node"] not in {"node-0", "node-1"},
        WAIT_S,
    )["node"]
    *_, worker = [event for event in run.events("worker.started") if event["node"] == joined]
    pid = int(worker["incarnation"].partition(".")[0])
    held = eventually("episodes there that cannot end", lambda: stopped_at_work(run, third, joined, pid), WAIT_S)
    third.kill()
    run.wait_event("word that it is gone", "node.down", lambda event: event["name"] == joined, WAIT_S)
    run.wait_event(
        "its requests issued again",
        "rollout_request.reissued",
        lambda event: event["reason"] == "worker_died" and any(each.startswith(event["trajectory"]) for each in held),
        WAIT_S,
    )

    submit_and_wait(run.path, parse_request(ControlAction.STOP, (), ""), WAIT_S)
    summary = run.succeed(WAIT_S)
    assert summary["ended"] == "stopped_by_request"
    assert {event["node"] for event in run.events("episode.finished")} == {"node-0", "node-1", joined}
    assert run.events("weights.copied"), "no weights came to the second machine"
    assert_accounting_balances(run.path)
    assert_no_token(head, run, second, third)
    eventually("the end of every container", lambda: not run.list_containers(), DEADLINE_S + 120)
    eventually("the end of its files on the second machine", lambda: not second.remaining_run_folders(), WAIT_S)


def test_a_killed_head_leaves_nothing_on_other_machines_and_the_run_resumes_on_a_new_one(
    three: list[Machine], mini_runs: MiniRuns
) -> None:
    """The second machine has no Docker engine, and so the engine alone; the head dies with the driver on it, and with
    all that could clean up: what its daemon had only created by then goes with the run that goes on."""
    head, second, _ = three
    without = {"LONGSHORE_HOME": "/nowhere"}
    cluster = head.start_head("--labels", f"{ROLES_LABEL}=worker")
    second.join(cluster, "--labels", f"{ROLES_LABEL}=engine", env=without)
    run = start(mini_runs, "machines-resumed", head, cluster, "--steps", "5")
    run.wait_step(2, WAIT_S)
    assert {event["node"] for event in run.events("worker.started")} == {"node-0"}
    head.kill()
    run.process.wait()
    eventually("the end of every process on the second machine", lambda: not second.pids(), WAIT_S)
    eventually("the end of its files there", lambda: not second.remaining_run_folders(), WAIT_S)
    eventually("the end of every container", lambda: not run.list_started_containers(), DEADLINE_S + 120)

    assert head.start_head("--labels", f"{ROLES_LABEL}=worker") == cluster
    second.join(cluster, "--labels", f"{ROLES_LABEL}=engine", env=without)
    again = mini_runs.resume("machines-resumed", env=head.env, prefix=head.prefix())
    summary = again.succeed(WAIT_S)
    assert summary["steps"] == 5
    assert not run.list_containers()
    assert_accounting_balances(run.path)
    assert_no_token(head, run, second)
