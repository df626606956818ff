"""Decides which hosts may be reached: pure rules over host names, ports and addresses.

Two checks must pass. The name, or ``*.`` and a parent domain, is on the task's list or the operator's. The address
that it resolves to is public, so that no name leads to this machine or its neighbours. Only the operator allows more:
a host that the operator names may be private, and an address that the operator names may be any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.ip_addresses import AddressKind, classify_address, parse_ip_address
from sandbox.tasks.allowed_hosts import allowed_ports, classify_host, split_authority
from sandbox.tasks.task_network import NetworkMode, TaskNetwork


@dataclass(frozen=True, slots=True)
class AllowList:
    """The allowed hosts: ``example.org``, ``*.example.org`` (its subdomains, not itself), ``name:8080``; without a
    port, 80 and 443 are allowed."""

    of_task: tuple[str, ...] = ()
    of_operator: tuple[str, ...] = ()
    everywhere: bool = False
    """Allow any public host at any port."""

    def allows(self, host: str, port: int) -> bool:
        """Return whether a host may be reached at a port, if its address may be."""
        return self.everywhere or port in self.ports(host)

    def ports(self, host: str) -> frozenset[int]:
        """Return the ports at which the entries allow a host."""
        return allowed_ports((*self.of_task, *self.of_operator), host)

    def explain_refused_address(self, host: str, port: int, address: str, *, is_own: bool) -> str:
        """Return why ``host``, which is allowed, may not be reached at the address that it resolved to; empty if it
        may. ``is_own``: the address is this machine's."""
        named = port in allowed_ports(tuple(each for each in self.of_operator if not each.startswith("*.")), host)
        parsed = parse_ip_address(address)
        if parsed is None:
            return "not an address"
        if named and parse_ip_address(host) == parsed:
            return ""
        kind = classify_address(parsed)
        if is_own and kind in {AddressKind.PUBLIC, AddressKind.PRIVATE}:
            return "this machine's own address"
        return "" if kind is AddressKind.PUBLIC or (named and kind is AddressKind.PRIVATE) else kind


def find_refused_hosts(network: TaskNetwork, of_operator: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the problem and its reason for each host of a task behind the proxy that is an address, or a name of one,
    which only the operator may allow and has not named."""
    if NetworkMode.PROXY not in {network.agent, network.verify}:
        return
    for entry in network.allowed_hosts:
        name, port = split_authority(entry, 443) or (entry, 0)
        kind = classify_host(name)
        if kind is not AddressKind.PUBLIC and port not in allowed_ports(of_operator, name):
            remedy = f"sandbox.allow_hosts or --allow-host {entry}"
            yield (
                f"allowed_hosts: {entry!r}",
                f"it is {kind}: only whoever runs the sandboxes may allow it, by {remedy}",
            )
