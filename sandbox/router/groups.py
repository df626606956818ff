"""Groups of slots, all or none, on one server if one has room, else over several.

A repeated request gets the same slots. The servers hold that information; the router only remembers which server to
contact. A server that does not answer counts as full. When a part of a group is refused, the whole group is released; a
part that could not be released ends at its deadline.

Slots that are allocated one by one are requested from the servers that hold the group; if none does, from one that
reserves all of them, or from several that do so together.
"""

from __future__ import annotations

import asyncio
import http
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from sandbox.http import failures
from sandbox.http import messages as m
from sandbox.http.messages import HttpError
from sandbox.pool.leases import GroupConflict
from sandbox.router.placement import (
    PoolServerNode,
    can_never_fit,
    group_shares,
    parse_router_lease_id,
    rank_nodes,
    remember_bounded,
    router_lease_id,
    split_slots,
)
from sandbox.router.pool_servers import PoolServerUnreachableError, RoutedPoolServers

_RETRY_S = 2.0
ANSWER_S = 10.0
"""Seconds after which a server is skipped that does not answer; it allocates and releases slots without waiting."""


class GroupSlots(NamedTuple):
    """Lease ids of a group's slots and their time to live."""

    ids: tuple[str, ...]
    ttl_s: float


class SlotGroups:
    """The groups on all servers."""

    def __init__(self, servers: RoutedPoolServers) -> None:
        self._servers = servers
        self._servers_of: dict[str, frozenset[str]] = {}
        """URLs of the servers that hold a group, by group."""
        self._server_of_member: dict[tuple[str, str], str] = {}
        """URL of the server that gave a slot, by group and request id."""
        self._one_at_a_time = asyncio.Lock()

    async def allocate(self, requested: m.AllocateGroupRequest) -> GroupSlots:
        """Allocate all slots of a group.

        Raises GroupConflict, and HttpError: 503 if there are not enough free slots, 422 if there never will be.
        """
        async with self._one_at_a_time:  # two groups must not each take half of what is left
            shares = await self._held(requested.task_id)
            if shares:
                if (slots := sum(shares.values())) != requested.n_slots:
                    raise GroupConflict(requested.task_id, slots, requested.n_slots)
                with suppress(_NotEnoughSlotsError):
                    return await self._allocate_shares(requested, shares)
                raise _exhausted(requested)
            return await self._allocate_new(requested)

    async def allocate_member(self, requested: m.AllocateGroupRequest) -> GroupSlots:
        """Allocate one slot of a group for the request id. Raises HttpError like :meth:`allocate`."""
        member = (requested.task_id, requested.request_id or "")
        async with self._one_at_a_time:
            gave, shares = self._server_of_member.get(member), await self._held(requested.task_id)
            for node in sorted(shares, key=lambda node: (node.url != gave, -node.reserved.get(requested.task_id, 0))):
                with suppress(
                    _NotEnoughSlotsError, PoolServerUnreachableError
                ):  # the same request gets the same slot when it comes again
                    return self._remember_member(
                        member, _slots(node, await self._request_slots(node, requested, requested.n_slots))
                    )
            if shares:
                raise _exhausted(requested)
            return self._remember_member(member, await self._allocate_new(requested))

    def _remember_member(self, member: tuple[str, str], slots: GroupSlots) -> GroupSlots:
        if found := parse_router_lease_id(slots.ids[0], self._servers.nodes):
            remember_bounded(self._server_of_member, member, found[0].url)
        return slots

    async def _allocate_new(self, requested: m.AllocateGroupRequest) -> GroupSlots:
        """Allocate a group that no server holds."""
        for node in rank_nodes(requested.task_id, requested.image, self._servers.nodes):
            with suppress(_NotEnoughSlotsError):
                return await self._allocate_shares(requested, {node: requested.n_slots})
        await self._servers.refresh()
        if can_never_fit(requested.n_slots, self._servers.nodes):
            message = f"a group of {requested.n_slots} slots does not fit on all servers together"
            raise HttpError(422, failures.GROUP_TOO_LARGE, message)
        shares = split_slots(requested.n_slots, self._servers.nodes)
        if shares is not None and len(shares) > 1:
            with suppress(_NotEnoughSlotsError):
                return await self._allocate_shares(requested, shares)
        raise _exhausted(requested)

    async def _held(self, group: str) -> dict[PoolServerNode, int]:
        """Return the number of the group's slots that each server holds."""
        gave = self._servers_of.get(group, frozenset())
        await self._servers.refresh([node for node in self._servers.nodes if node.url in gave or group in node.groups])
        return group_shares(group, self._servers.nodes)

    async def _allocate_shares(
        self, requested: m.AllocateGroupRequest, shares: dict[PoolServerNode, int]
    ) -> GroupSlots:
        """Allocate these shares. Raises _NotEnoughSlotsError, and HttpError if a server holds another group of that
        name; then nothing is held."""
        taken: list[str] = []
        asking: list[PoolServerNode] = []
        ttl_s = 0.0
        try:
            for node, slots in shares.items():
                asking.append(node)
                ids, ttl_s = _slots(node, await self._request_slots(node, requested, slots, reserve=bool(taken)))
                taken += ids
        except (
            _NotEnoughSlotsError,
            HttpError,
        ):  # the slots of that name on the server that refuses are not of this request
            await asyncio.shield(self._released(requested.task_id, asking[:-1]))
            raise
        except BaseException as error:  # a server that did not answer may still have allocated them
            await asyncio.shield(self._released(requested.task_id, asking))
            if isinstance(error, PoolServerUnreachableError):
                raise _NotEnoughSlotsError from error
            raise
        remember_bounded(self._servers_of, requested.task_id, frozenset(node.url for node in shares))
        return GroupSlots(tuple(taken[:1] if requested.request_id else taken), ttl_s)

    async def _request_slots(
        self, node: PoolServerNode, requested: m.AllocateGroupRequest, slots: int, *, reserve: bool = False
    ) -> dict[str, Any]:
        """Request slots from one server. With ``reserve`` they wait for requests with ids.

        Raises _NotEnoughSlotsError, HttpError for another group of that name, PoolServerUnreachableError.
        """
        one = {"reserve": True} if reserve else {"request_id": requested.request_id}
        body = {"task_id": requested.task_id, "n_slots": slots, **(one if requested.request_id else {})}
        answer = await self._servers.post(node, "/allocate_group", body, ANSWER_S)
        if answer.status == http.HTTPStatus.CONFLICT:
            raise HttpError(409, str(answer.body.get("code")), str(answer.body.get("error")))
        if answer.status != http.HTTPStatus.OK:
            raise _NotEnoughSlotsError
        return answer.body

    async def release(self, group: str) -> int:
        """Release a group on all servers, since a restarted router does not know where it is. Returns the number of
        slots."""
        self._servers_of.pop(group, None)
        return await self._released(group, self._servers.nodes)

    async def _released(self, group: str, nodes: Iterable[PoolServerNode]) -> int:
        """Release a group on these servers; the slots of one that does not answer end at their deadline."""
        released: list[int] = []

        async def one(node: PoolServerNode) -> None:
            with suppress(PoolServerUnreachableError):
                answer = await self._servers.post(node, "/release_group", {"task_id": group}, ANSWER_S)
                released.append(int(answer.body.get("released_slots", 0)))

        async with asyncio.TaskGroup() as at_once:
            for node in nodes:
                at_once.create_task(one(node))
        return sum(released)


def _slots(node: PoolServerNode, given: dict[str, Any]) -> GroupSlots:
    return GroupSlots(
        tuple(router_lease_id(node, each["slot_id"]) for each in given["assignments"]), float(given["ttl_s"])
    )


class _NotEnoughSlotsError(Exception):
    """A server does not have enough free slots."""


def _exhausted(requested: m.AllocateGroupRequest) -> HttpError:
    message = f"there are not {requested.n_slots} free slots on all servers"
    return HttpError(503, "RUN_SLOTS_EXHAUSTED", message, retry_after_s=_RETRY_S)
