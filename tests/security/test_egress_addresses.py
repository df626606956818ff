"""If these fail, a task's author or an agent reaches the machine that runs the sandboxes, or its neighbours, by a name
or an address that the egress proxy lets through."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from sandbox.egress_proxy.lazy_proxy import LazyEgressProxy
from sandbox.egress_proxy.own_addresses import is_own_address
from sandbox.egress_proxy.rules import AllowList
from sandbox.egress_proxy.settings import EgressProxySettings
from sandbox.egress_proxy.upstream import EgressRefusedError, vet_host
from sandbox.errors import TaskFault
from sandbox.http.task_codec import TaskRefused, decode_task, encode_task
from sandbox.ip_addresses import AddressKind, classify_address, parse_ip_address
from sandbox.tasks.problems import find_broken_rules
from sandbox.tasks.task import Task
from sandbox.tasks.task_network import NetworkMode, TaskNetwork

KINDS = {
    AddressKind.LOOPBACK: "127.0.0.1 127.9.8.7 127.1 2130706433 0x7f.1 017700000001 ::1 ::ffff:127.0.0.1 "
    "::ffff:7f00:1 64:ff9b::127.0.0.1 64:ff9b::7f00:1",
    AddressKind.UNSPECIFIED: "0.0.0.0 0 0.1.2.3 :: ::ffff:0.0.0.0",
    AddressKind.LINK_LOCAL: "169.254.1.1 fe80::1 fe80::1%eth0 febf::1",
    AddressKind.METADATA: "169.254.169.254 100.100.100.200 168.63.129.16 fd00:ec2::254 fd00:ec2::23 "
    "::ffff:169.254.169.254",
    AddressKind.SITE_LOCAL: "fec0::1 feff::1",
    AddressKind.MULTICAST: "224.0.0.1 239.255.255.250 ff02::1 ff0e::1 ::ffff:224.0.0.1",
    AddressKind.EMBEDDED: "::127.0.0.1 ::8.8.8.8 2002:7f00:1:: 2002:808:808::1 2001:0:808:808::1 64:ff9b:1::7f00:1 "
    "::ffff:0:127.0.0.1 2600::5efe:127.0.0.1 2600::200:5efe:10.0.0.1 192.88.99.1",
    AddressKind.RESERVED: "240.0.0.1 255.255.255.255 192.0.0.8 4000::1 100::1 2001:2::1",
    AddressKind.PRIVATE: "10.0.0.1 172.16.0.1 192.168.1.1 100.64.0.1 192.0.2.2 198.18.0.1 fd12::1 2001:db8::1 "
    "::ffff:10.0.0.1 64:ff9b::10.0.0.1",
    AddressKind.PUBLIC: "8.8.8.8 1.1.1.1 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::8.8.8.8",
}
SPELLED = [(address, kind) for kind, addresses in KINDS.items() for address in addresses.split()]
BAD = [address for address, kind in SPELLED if kind is not AddressKind.PUBLIC]
LISTED = [*BAD, "localhost", "a.localhost", "LOCALHOST.", "*.localhost"]
TASK = Task("t", "do it", run_tests="true")


def as_entry(address: str) -> str:
    return f"[{address}]:8080" if ":" in address else f"{address}:8080"


@pytest.mark.parametrize(("address", "kind"), SPELLED)
def test_an_address_is_judged_by_what_it_leads_to_in_every_spelling(address: str, kind: AddressKind):
    parsed = parse_ip_address(address)
    assert parsed is not None
    assert classify_address(parsed) is kind


@pytest.mark.parametrize(
    "host", ["example.org", "127.0.0.1.example", "1.2.3.4.5", "1 ", "", "deadbeef", " ", "a\0", "é"]
)
def test_a_name_is_no_address(host: str):
    assert parse_ip_address(host) is None


@pytest.mark.parametrize("host", [each for each in LISTED if "%" not in each])
def test_a_task_that_names_such_a_host_starts_only_where_the_operator_names_it_too(host: str, tmp_path: Path):
    """It loads anywhere: only whoever runs the sandboxes knows what is allowed there."""
    entry = as_entry(host)
    listed = dataclasses.replace(
        TASK, network=TaskNetwork(agent=NetworkMode.PROXY, allowed_hosts=("example.org", entry))
    )
    assert not list(find_broken_rules(listed))
    assert decode_task(encode_task(listed)) == listed
    for others in ((), ("example.org", "*.example.org"), (entry.replace(":8080", ":8081"),)):
        with pytest.raises(TaskFault, match=rf"{re.escape(repr(entry))}: it is .*sandbox\.allow_hosts or --allow-host"):
            LazyEgressProxy(tmp_path, EgressProxySettings(allow_hosts=others)).check_hosts(listed.network)
    LazyEgressProxy(tmp_path, EgressProxySettings(allow_hosts=(entry,))).check_hosts(listed.network)


@pytest.mark.parametrize(
    "addresses",
    [
        *("127.0.0.0/8", "127.8.0.0/16:8080", "10.0.0.0/8", "192.168.1.0/24", "169.254.0.0/16", "240.0.0.0/4"),
        *("::1/128", "fe80::/10", "fd00::/8", "[fd00::/8]:8080", "::ffff:10.0.0.0/104", "2002::/16", "::/96"),
    ],
)
def test_a_task_that_names_a_range_without_a_public_address_does_not_start(addresses: str, tmp_path: Path):
    listed = dataclasses.replace(TASK, network=TaskNetwork(agent=NetworkMode.PROXY, allowed_hosts=(addresses,)))
    assert not list(find_broken_rules(listed))
    assert decode_task(encode_task(listed)) == listed
    with pytest.raises(TaskFault, match=rf"{re.escape(repr(addresses))}: it is .*sandbox\.allow_hosts or --allow-host"):
        LazyEgressProxy(tmp_path, EgressProxySettings()).check_hosts(listed.network)


@pytest.mark.parametrize("entry", ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3"])
def test_a_private_range_of_a_task_starts_where_the_operator_names_one_that_contains_it(entry: str, tmp_path: Path):
    network = TaskNetwork(agent=NetworkMode.PROXY, allowed_hosts=(entry,))
    LazyEgressProxy(tmp_path, EgressProxySettings(allow_hosts=("10.0.0.0/8",))).check_hosts(network)
    for other in ("10.1.2.0/31", "11.0.0.0/8", "10.0.0.0/8:8080"):
        with pytest.raises(TaskFault):
            LazyEgressProxy(tmp_path, EgressProxySettings(allow_hosts=(other,))).check_hosts(network)


@pytest.mark.parametrize("address", [each for each in BAD if "%" not in each])
async def test_a_range_of_all_addresses_leads_to_no_such_address(address: str):
    everything = AllowList(("0.0.0.0/0:8080", "[::/0]:8080"))
    with pytest.raises(EgressRefusedError, match="or --allow-host may allow it"):
        await vet_host(everything, address, 8080)
    assert refused(AllowList(("0.0.0.0/0", "::/0")), "files.example", address)


def test_a_range_of_the_operator_leads_to_private_addresses_but_never_to_this_machine():
    operator = AllowList((), ("10.0.0.0/8", "0.0.0.0/0:80"))
    assert not refused(operator, "mirror.example", "10.0.0.1")
    assert not refused(operator, "10.0.0.1", "10.0.0.1")
    assert refused(operator, "10.0.0.1", "10.0.0.1", is_own=True) == "this machine's own address"
    for address in ("127.0.0.1", "169.254.169.254"):
        assert refused(operator, address, address)
        assert refused(operator, "mirror.example", address)


@pytest.mark.parametrize("entry", ["", "a:b", "a:0", "[::1", "a:70000", "10.0.0.1/8", "10.0.0.0/33", "[fe80::1%\n]"])
def test_what_is_no_host_neither_loads_nor_arrives(entry: str):
    listed = dataclasses.replace(TASK, network=TaskNetwork(agent=NetworkMode.PROXY, allowed_hosts=(entry,)))
    assert [what for what, _ in find_broken_rules(listed)] == [f"allowed_hosts: {entry!r}"]
    with pytest.raises(TaskRefused, match=r"network\.allowed_hosts"):
        decode_task(encode_task(listed))


@pytest.mark.parametrize("allowed", [AllowList(tuple(map(as_entry, BAD))), AllowList(everywhere=True)])
@pytest.mark.parametrize("address", [each for each in BAD if "%" not in each])
async def test_neither_a_tasks_list_nor_network_full_leads_to_such_an_address(allowed: AllowList, address: str):
    with pytest.raises(EgressRefusedError, match="or --allow-host may allow it"):
        await vet_host(allowed, address, 8080)


def refused(allowed: AllowList, host: str, address: str, *, is_own: bool = False) -> str:
    return allowed.explain_refused_address(host, 80, address, is_own=is_own)


@pytest.mark.parametrize("address", [each for each in BAD if "%" not in each])
def test_a_name_that_a_task_lists_never_leads_to_such_an_address(address: str):
    assert refused(AllowList(("files.example", "*.example")), "files.example", address)
    assert refused(AllowList((), ("*.example",)), "files.example", address), "a wildcard of the operator"


def test_only_the_operator_allows_private_addresses_and_by_its_own_spelling_any():
    operator = AllowList((), ("mirror.example", "127.0.0.1"))
    assert not refused(operator, "mirror.example", "10.0.0.1")
    assert not refused(operator, "127.0.0.1", "127.0.0.1")
    for address in ("127.0.0.1", "169.254.169.254", "::1"):
        assert refused(operator, "mirror.example", address)
    assert refused(operator, "mirror.example", "10.0.0.1", is_own=True) == "this machine's own address"
    assert refused(AllowList(everywhere=True), "8.8.8.8", "8.8.8.8", is_own=True) == "this machine's own address"


def test_the_machines_own_addresses_are_known():
    assert is_own_address("127.0.0.1")
    assert not is_own_address("240.1.2.3")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("this machine has no address but its loopback")
        own = probe.getsockname()[0]
        assert is_own_address(own)
        assert is_own_address(f"64:ff9b::{own}")


async def test_a_name_is_resolved_once_and_connected_to_where_it_was_judged(monkeypatch: pytest.MonkeyPatch):
    """A server of names that answers with another address the second time would lead past the judgement."""
    answers = iter(["8.8.8.8", "127.0.0.1"])

    async def fake_getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), 80))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fake_getaddrinfo)
    vetted = await vet_host(AllowList(("files.example",)), "files.example", 80)
    assert vetted.addresses == ("8.8.8.8",)
    with pytest.raises(EgressRefusedError, match=r"127\.0\.0\.1, a loopback address"):
        await vet_host(AllowList(("files.example",)), "files.example", 80)
