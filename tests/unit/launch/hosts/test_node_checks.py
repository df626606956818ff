"""If these fail, a run starts on nodes that cannot do its work, takes a dead node's name for a living one's, or does
not notice that its cluster has ended."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from actors.runtime.remote_errors import ActorDied
from launch.config import load_recipe
from launch.doctor import gpu
from launch.doctor.finding import CheckName, FindingLevel, failed, warning
from launch.hosts import membership_watch
from launch.hosts.cluster_nodes import ALL_ROLES, ClusterNode, NodeRole, RayNode
from launch.hosts.membership import NodeMembership
from launch.hosts.membership_watch import ClusterLostError, watch_membership
from launch.hosts.node_checks import NodeReport, check_nodes, describe_findings, restrict_roles
from launch.hosts.node_requirements import (
    InstalledSoftware,
    NodeRequirements,
    code_digest,
    compare_software,
    inspect_node,
    judge_clock_offset,
    make_node_requirements,
    role_lost,
)
from protocol.errors import UserError


def node(number: int, labelled: frozenset[NodeRole] = frozenset()) -> ClusterNode:
    return ClusterNode(
        f"node-{number}", f"ray-{number}", f"10.0.0.{number}", remote=number > 0, labelled_roles=labelled
    )


def ray_node(number: int, roles: str = "") -> RayNode:
    return RayNode(f"ray-{number}", f"10.0.0.{number}", 0, 4, roles)


NO_DOCKER = failed(CheckName.DOCKER, "no Docker engine answers", "run `make setup`")
NO_GPU = failed(CheckName.GPU, "no GPU", "take another")
OTHER_CODE = failed(CheckName.VERSIONS, "other code than the driver's", "bring both to the same commit")
SMALL = warning(CheckName.SHM, "it is small", "make it larger")


# -- who is in the cluster ---------------------------------------------------------------------------------------------


def test_a_node_that_comes_back_gets_a_new_name() -> None:
    """With its old name its worker would be taken for the dead one's successor, and its keys be used twice."""
    membership = NodeMembership([node(0), node(1)], max_nodes=2)
    assert membership.update([ray_node(0), ray_node(1)]) == ((), (), ())
    assert [gone.name for gone in membership.update([ray_node(0)]).gone] == ["node-1"]
    (joined,) = membership.update([ray_node(0), ray_node(5)]).joined
    assert (joined.name, joined.ray_id, joined.remote) == ("node-2", "ray-5", True)


def test_no_more_nodes_join_than_the_run_may_have() -> None:
    membership = NodeMembership([node(0)], max_nodes=2)
    change = membership.update([ray_node(number) for number in range(4)])
    assert [joined.name for joined in change.joined] == ["node-1"]
    assert membership.update([ray_node(number) for number in range(4)]).joined == ()


def test_a_node_that_was_refused_is_not_looked_at_again() -> None:
    membership = NodeMembership([node(0)], max_nodes=3)
    (joined,) = membership.update([ray_node(0), ray_node(1)]).joined
    membership.refuse(joined)
    assert membership.update([ray_node(0), ray_node(1)]) == ((), (), ())


def test_a_node_with_an_unknown_role_label_is_named_and_left_out() -> None:
    membership = NodeMembership([node(0)], max_nodes=3)
    change = membership.update([ray_node(0), ray_node(1, "cook"), ray_node(2, "worker")])
    assert [joined.roles for joined in change.joined] == [{NodeRole.WORKER}]
    (why,) = change.refused
    assert "'cook' is not a role" in why
    assert membership.update([ray_node(0), ray_node(1, "cook"), ray_node(2, "worker")]).refused == ()


# -- what nodes must have ----------------------------------------------------------------------------------------------


def test_a_node_without_docker_gets_no_agents_and_one_without_a_gpu_no_engine() -> None:
    nodes = [node(0), node(1), node(2)]
    found = {"node-0": (NO_DOCKER,), "node-1": (SMALL,), "node-2": (NO_GPU,)}
    assert [each.roles for each in restrict_roles(nodes, found)] == [{NodeRole.ENGINE}, ALL_ROLES, {NodeRole.WORKER}]
    assert describe_findings(nodes, found) == [
        "node-0 (10.0.0.0): no workers run there, for no Docker engine answers: run `make setup`",
        "node-1 (10.0.0.1): /dev/shm: it is small: make it larger",
        "node-2 (10.0.0.2): no engine runs there, for no GPU: take another",
    ]


def test_unusable_nodes_are_all_reported_in_one_error() -> None:
    nodes = [node(0), node(1, frozenset({NodeRole.WORKER})), node(2)]
    with pytest.raises(UserError) as caught:
        restrict_roles(nodes, {"node-1": (NO_DOCKER,), "node-2": (OTHER_CODE,)})
    assert str(caught.value) == (
        "2 of 3 nodes cannot be used. node-1 (10.0.0.1): docker: no Docker engine answers: run `make setup`. "
        "node-2 (10.0.0.2): versions: other code than the driver's: bring both to the same commit"
    )


async def test_nodes_are_checked_concurrently_and_a_missing_answer_is_a_finding() -> None:
    all_asked = asyncio.Barrier(3)

    async def ask(target: ClusterNode, requirements: NodeRequirements) -> NodeReport:
        await all_asked.wait()
        if target.name == "node-1":
            raise ActorDied("node-inspector", "its node is gone")
        return NodeReport((NO_GPU,) if target.name == "node-2" else (), time.time())

    found = await check_nodes([node(0), node(1), node(2)], make_node_requirements(load_recipe("demo")), ask)
    assert [[each.check for each in found[name]] for name in ("node-0", "node-1", "node-2")] == [
        [],
        [CheckName.ANSWER],
        [CheckName.GPU],
    ]


async def test_any_error_from_a_node_with_other_code_is_reported_as_a_version_mismatch() -> None:
    """It cannot read what it is asked, and joined one that goes on."""

    async def ask(target: ClusterNode, requirements: NodeRequirements) -> NodeReport:
        raise AttributeError("machines")

    found = await check_nodes([node(0)], make_node_requirements(load_recipe("demo")), ask)
    with pytest.raises(UserError, match="AttributeError: machines: bring it to the driver's commit"):
        restrict_roles([node(0)], found)


@pytest.mark.parametrize(
    ("behind_s", "uncertain_s", "message"),
    [(1.5, 0.0, ""), (30.0, 29.0, ""), (30.0, 1.0, "30 s behind"), (-90.0, 1.0, "90 s ahead of")],
)
def test_a_clock_is_reported_only_beyond_what_the_delay_of_the_answer_explains(
    behind_s: float, uncertain_s: float, message: str
) -> None:
    found = judge_clock_offset(behind_s, uncertain_s)
    assert [each.check for each in found] == ([CheckName.CLOCK] if message else [])
    assert message in "".join(map(str, found))


def test_this_machine_passes_the_inspection_of_a_node(tmp_path: Path) -> None:
    requirements = make_node_requirements(load_recipe("demo"))
    wants = replace(requirements.host_requirements, docker=False, folder=tmp_path / "made" / "later", reserve_mb=1)
    assert not [
        each
        for each in inspect_node(replace(requirements, host_requirements=wants))
        if each.level is FindingLevel.FAILED
    ]


OWN = InstalledSoftware("3.11.7", {"ray": "2.5"}, "1" * 64)


@pytest.mark.parametrize(
    ("node_has", "message"),
    [
        (OWN, None),
        (replace(OWN, code="0" * 64), "the same commit"),
        (replace(OWN, python="2.7.18"), "2.7.18, and the driver has 3.11.7"),
        (replace(OWN, packages={"ray": "1.0"}), "ray 1.0 for 2.5"),
        (replace(OWN, packages={}), "ray none for 2.5"),
    ],
)
def test_a_node_with_other_software_than_the_driver_is_refused(
    node_has: InstalledSoftware, message: str | None
) -> None:
    """Otherwise its actors could not read their messages, or would compute something else."""
    found = list(compare_software(node_has, OWN))
    assert len(found) == (message is not None)
    assert message is None or message in str(found[0])
    assert all(each.level is FindingLevel.FAILED and role_lost(each) is None for each in found)


def test_a_node_is_inspected_with_the_checks_of_the_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that lacks something for one kind of work is kept from that work alone."""
    monkeypatch.setattr(gpu, "DEVICES", tmp_path)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    requirements = make_node_requirements(load_recipe("demo", ["engine.device=cuda"]))
    requirements = replace(
        requirements, host_requirements=replace(requirements.host_requirements, folder=tmp_path, reserve_mb=1 << 40)
    )
    found = {each.check: role_lost(each) for each in inspect_node(requirements) if each.level is FindingLevel.FAILED}
    assert found == {CheckName.DISK: None, CheckName.DOCKER: NodeRole.WORKER, CheckName.GPU: NodeRole.ENGINE}


def test_the_code_digest_covers_only_modules_of_the_product(tmp_path: Path) -> None:
    (tmp_path / "actors").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "actors" / "a.py").write_text("1")
    before = code_digest(tmp_path)
    (tmp_path / "tests" / "a.py").write_text("1")
    (tmp_path / "actors" / "notes.txt").write_text("1")
    assert code_digest(tmp_path) == before
    (tmp_path / "actors" / "a.py").write_text("2")
    assert code_digest(tmp_path) != before


# -- whether it is there at all ----------------------------------------------------------------------------------------


class FakeCluster:
    """Fake: what Ray says at each look; the last one again and again."""

    def __init__(self, *looks: Sequence[int]) -> None:
        self._looks = [list(map(ray_node, look)) for look in looks]

    def __call__(self) -> list[RayNode]:
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_watch, "CHECK_S", 0.0)


async def test_the_loss_of_the_drivers_node_ends_the_cluster() -> None:
    changes = watch_membership(NodeMembership([node(0), node(1)], 2), list_nodes=FakeCluster([0, 1], [0], [1]))
    assert [gone.name for gone in (await anext(changes)).gone] == ["node-1"]
    with pytest.raises(ClusterLostError, match="driver's node"):
        await anext(changes)


@pytest.fixture
def head() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


async def test_a_killed_head_is_noticed_even_without_an_answer(head: subprocess.Popen[bytes]) -> None:
    changes = watch_membership(NodeMembership([node(0)], 2), [head.pid], list_nodes=FakeCluster([0], [0, 1]))
    assert [joined.name for joined in (await anext(changes)).joined] == ["node-1"]
    head.kill()
    with pytest.raises(ClusterLostError, match="killed on the driver's machine"):
        await anext(changes)


async def test_a_driver_that_was_busy_for_long_does_not_take_the_cluster_for_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Handling a node's end may take long, and so may a person who has stopped the driver with Ctrl-Z."""
    loop = asyncio.get_running_loop()
    clock, ahead = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: clock() + ahead[0])
    changes = watch_membership(NodeMembership([node(0), node(1)], 2), list_nodes=FakeCluster([0, 1], [0], [0, 2]))
    assert [gone.name for gone in (await anext(changes)).gone] == ["node-1"]
    ahead[0] = 2 * membership_watch.HEAD_TIMEOUT_S
    assert [joined.name for joined in (await anext(changes)).joined] == ["node-2"]


async def test_a_head_that_never_answers_does_not_hang_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_watch, "HEAD_TIMEOUT_S", 0.05)
    reader, writer = os.pipe()

    def hang() -> list[RayNode]:
        os.read(reader, 1)
        return []

    with pytest.raises(ClusterLostError, match="has not answered"):
        await anext(watch_membership(NodeMembership([node(0)], 2), list_nodes=hang))
    os.close(writer)
