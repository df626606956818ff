"""If these fail, sandboxes pile up on one machine, or images are built on all of them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.router.placement import (
    PoolServerNode,
    can_never_fit,
    is_repeatable,
    parse_router_lease_id,
    rank_nodes,
    router_lease_id,
    split_slots,
)

NODES = [PoolServerNode(f"http://w{n}:18081", free=4) for n in range(5)]


def test_a_task_keeps_its_server_when_others_come_and_go():
    for task in map(str, range(200)):
        first = rank_nodes(task, "", NODES)[0]
        assert rank_nodes(task, "", list(reversed(NODES)))[0] == first
        rest = [node for node in NODES if node != NODES[0]]
        if first != NODES[0]:
            assert rank_nodes(task, "", rest)[0] == first


def test_tasks_spread_over_all_servers():
    load = Counter(rank_nodes(str(task), "", NODES)[0] for task in range(2000))
    assert len(load) == 5
    assert max(load.values()) < 2 * min(load.values())


def test_servers_with_the_image_are_ranked_first_and_unreachable_ones_last():
    has, lacks = PoolServerNode("http://a", images=frozenset({"x:1"})), PoolServerNode("http://b")
    dead = PoolServerNode("http://c", reachable=False, images=frozenset({"x:1"}))
    for task in map(str, range(50)):
        assert rank_nodes(task, "x:1", [dead, lacks, has]) == [has, lacks, dead]
    assert {rank_nodes(str(task), "", [has, lacks])[0] for task in range(50)} == {has, lacks}


@given(st.integers(1, 16), st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=6))
def test_a_group_is_split_exactly_or_not_at_all(slots: int, shape: list[tuple[int, bool]]):
    nodes = [PoolServerNode(f"http://{n}", reachable, free, slots=8) for n, (free, reachable) in enumerate(shape)]
    shares = split_slots(slots, nodes)
    room = sum(node.free for node in nodes if node.reachable)
    if shares is None:
        assert room < slots
    else:
        assert sum(shares.values()) == slots
        assert all(0 < share <= node.free and node.reachable for node, share in shares.items())


def test_a_group_is_not_placed_on_a_server_that_accepts_no_new_tasks():
    full, fits = (
        PoolServerNode("http://a", free=8, slots=8, new_tasks=False),
        PoolServerNode("http://b", free=4, slots=8),
    )
    assert split_slots(4, [full, fits]) == {fits: 4}
    assert split_slots(5, [full, fits]) is None


def test_a_group_is_declared_too_large_only_if_all_servers_have_reported():
    eight, dead, silent = (
        PoolServerNode("http://a", slots=8),
        PoolServerNode("http://b", reachable=False, slots=4),
        PoolServerNode("http://c"),
    )
    assert can_never_fit(13, [eight, dead])
    assert not can_never_fit(12, [eight, dead])
    assert not can_never_fit(99, [eight, dead, silent])


@given(st.text(max_size=40))
def test_a_router_lease_id_survives_a_round_trip(text: str):
    assert parse_router_lease_id(router_lease_id(NODES[2], "run-1"), reversed(NODES)) == (NODES[2], "run-1")
    found = parse_router_lease_id(text, NODES)
    assert found is None or router_lease_id(*found) == text


@pytest.mark.parametrize(
    ("path", "body", "may"),
    [
        ("/exec_tool", {}, False), ("/exec_tool", {"request_id": None}, False), ("/run", {"request_id": "r"}, True),
        ("/evaluate", {}, False), ("/allocate", {}, False), ("/reset", {"request_id": ""}, False),
        ("/heartbeat", {}, True), ("/close", {}, True), ("/read_file", {}, True), ("/allocate_group", {}, True),
    ],
)  # fmt: skip
def test_only_idempotent_requests_are_repeatable(path: str, body: dict[str, object], may: bool):
    assert is_repeatable(path, body) is may
