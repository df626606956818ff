"""Decides which hosts may be reached: pure rules over host names, ports and addresses.

Two checks must pass. The name, or ``*.`` and a parent domain, is on the task's list or the operator's, or the address
that it resolves to is in a range of those lists. And that address is public, so that no name leads to this machine or
its neighbours. Only the operator allows more: a host or range that the operator names may be private, and an address
that the operator names may be any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.ip_addresses import AddressKind, classify_address, parse_ip_address
from sandbox.tasks.allowed_hosts import (
    AllowedHost,
    allowed_ports,
    classify_host,
    parse_allowed_host,
    ports_by_range,
    ports_of_ranges,
)
from sandbox.tasks.task_network import NetworkMode, TaskNetwork


@dataclass(frozen=True, slots=True)
class AllowList:
    """The allowed hosts: ``example.org``, ``*.example.org`` (its subdomains, not itself), ``name:8080``, or a range of
    addresses, ``192.0.2.0/24``; without a port, 80 and 443 are allowed."""

    of_task: tuple[str, ...] = ()
    of_operator: tuple[str, ...] = ()
    everywhere: bool = False
    """Allow any public host at any port."""

    @property
    def _entries(self) -> tuple[str, ...]:
        return (*self.of_task, *self.of_operator)

    def allows(self, host: str, port: int) -> bool:
        """Return whether a host may be reached at a port, if its address may be."""
        return self.everywhere or port in self.ports(host)

    def may_allow_address(self, host: str, port: int) -> bool:
        """Return whether a host may turn out to be allowed at a port by the address that it resolves to."""
        return parse_ip_address(host) is None and port in ports_of_ranges(self._entries)

    def ports(self, host: str) -> frozenset[int]:
        """Return the ports at which the entries allow a host."""
        address = parse_ip_address(host)
        by_range = ports_by_range(self._entries, address) if address is not None else frozenset[int]()
        return allowed_ports(self._entries, host) | by_range

    def explain_refused_address(self, host: str, port: int, address: str, *, is_own: bool) -> str:
        """Return why ``host`` may not be reached at the address that it resolved to; empty if it may. ``is_own``: the
        address is this machine's."""
        named = port in allowed_ports(tuple(each for each in self.of_operator if not each.startswith("*.")), host)
        parsed = parse_ip_address(address)
        if parsed is None:
            return "not an address"
        if named and parse_ip_address(host) == parsed:
            return ""
        if not self.allows(host, port) and port not in ports_by_range(self._entries, parsed):
            return "in no range that this task allows"
        kind = classify_address(parsed)
        if is_own and kind in {AddressKind.PUBLIC, AddressKind.PRIVATE}:
            return "this machine's own address"
        may_be_private = named or port in ports_by_range(self.of_operator, parsed)
        return "" if kind is AddressKind.PUBLIC or (may_be_private and kind is AddressKind.PRIVATE) else kind


def find_refused_hosts(network: TaskNetwork, of_operator: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the problem and its reason for each host of a task behind the proxy that is an address, a range, or a name
    of one, which only the operator may allow and has not named."""
    if NetworkMode.PROXY not in {network.agent, network.verify}:
        return
    for entry in network.allowed_hosts:
        allowed = parse_allowed_host(entry)
        if allowed is None or _is_allowed_by(of_operator, allowed):
            continue
        kind = classify_host(allowed.host)
        own = ", to which programs in a sandbox need no permission if it is their own" * (kind is AddressKind.LOOPBACK)
        remedy = f"sandbox.allow_hosts or --allow-host {entry}"
        if not isinstance(allowed.host, str) and kind is not AddressKind.PRIVATE:
            remedy = "sandbox.allow_hosts or --allow-host with the single address"
        yield (
            f"allowed_hosts: {entry!r}",
            f"it is {kind}{own}: only whoever runs the sandboxes may allow it, by {remedy}",
        )


def _is_allowed_by(of_operator: tuple[str, ...], allowed: AllowedHost) -> bool:
    """Return whether a host is public, or may be another because the operator names it or a range that contains it."""
    kind = classify_host(allowed.host)
    if kind is AddressKind.PUBLIC:
        return True
    if isinstance(allowed.host, str):
        named, addresses = allowed_ports(of_operator, allowed.host), parse_ip_address(allowed.host)
    else:
        named, addresses = frozenset[int](), allowed.host
    if addresses is not None and kind is AddressKind.PRIVATE:
        named |= ports_by_range(of_operator, addresses)
    return (allowed.port or 443) in named
