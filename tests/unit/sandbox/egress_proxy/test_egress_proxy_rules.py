"""If these fail, a sandbox behind the proxy reaches a host that its task does not allow, or the proxy's own machine."""

from __future__ import annotations

import asyncio
import itertools
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.egress_proxy.index_links import LinkRewriter, proxied_path, proxied_url
from sandbox.egress_proxy.rules import AllowList
from sandbox.egress_proxy.upstream import EgressRefusedError, vet_host
from sandbox.tasks.allowed_hosts import split_authority

PROXY_URL = "http://127.0.0.1:3128"
LIST = AllowList(("files.example", "*.deep.example", "odd.example:8080", "10.1.2.3:99", "[fd00::1]:99"))
RANGES = AllowList(("8.8.0.0/16", "2606:4700::/32", "9.0.0.0/8:8080"))


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("files.example", 443, True),
        ("FILES.example.", 80, True),
        ("files.example", 22, False),
        ("x.files.example", 443, False),
        ("files.example.evil.example", 443, False),
        ("a.b.deep.example", 443, True),
        ("deep.example", 443, False),
        ("evildeep.example", 443, False),
        ("odd.example", 8080, True),
        ("odd.example", 443, False),
        ("10.1.2.3", 99, True),
        ("10.1.2.4", 99, False),
        ("fd00::1", 99, True),
        ("127.0.0.1", 80, False),
    ],
)
def test_only_listed_hosts_are_allowed(host: str, port: int, allowed: bool):
    assert LIST.allows(host, port) is allowed


@pytest.mark.parametrize(
    ("address", "port", "allowed"),
    [
        ("8.8.9.10", 443, True),
        ("8.8.2058", 80, True),
        ("::ffff:8.8.9.10", 80, True),
        ("8.8.9.10", 22, False),
        ("8.9.0.1", 443, False),
        ("9.1.2.3", 8080, True),
        ("9.1.2.3", 443, False),
        ("2606:4700::1111", 443, True),
        ("2606:4701::1111", 443, False),
    ],
)
def test_an_address_in_a_listed_range_is_allowed_in_every_spelling(address: str, port: int, allowed: bool):
    assert RANGES.allows(address, port) is allowed


async def test_a_name_is_reached_only_at_those_of_its_addresses_that_are_in_a_listed_range(
    monkeypatch: pytest.MonkeyPatch,
):
    async def fake_getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        addresses = {"in.example": ("1.1.1.1", "8.8.4.4"), "out.example": ("1.1.1.1",)}[host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fake_getaddrinfo)
    assert (await vet_host(RANGES, "in.example", 443)).addresses == ("8.8.4.4",)
    with pytest.raises(EgressRefusedError, match=r"out\.example leads to 1\.1\.1\.1, in no range that"):
        await vet_host(RANGES, "out.example", 443)
    with pytest.raises(EgressRefusedError, match=r"in\.example:22 is not among the hosts"):
        await vet_host(RANGES, "in.example", 22)


async def test_a_name_that_is_not_listed_is_not_even_resolved_where_no_range_is(monkeypatch: pytest.MonkeyPatch):
    """What an agent asks servers of names leaves the machine."""

    async def fake_getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        raise AssertionError("a name was resolved")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fake_getaddrinfo)
    with pytest.raises(EgressRefusedError, match="is not among the hosts"):
        await vet_host(AllowList(("files.example", "8.8.8.8")), "secret.evil.example", 443)


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("files.example", 22, "files.example:22 is refused for its port: this task allows files.example at 80 and 443"),
        ("odd.example", 80, "odd.example:80 is refused for its port: this task allows odd.example at 8080"),
        ("other.example", 80, "other.example:80 is not among the hosts that this task allows"),
    ],
)
async def test_a_refusal_says_whether_host_or_port_is_not_listed(host: str, port: int, message: str):
    with pytest.raises(EgressRefusedError) as refused:
        await vet_host(LIST, host, port)
    assert str(refused.value) == message


@given(st.text(max_size=30))
def test_any_text_yields_a_valid_authority_or_is_refused(text: str):
    parts = split_authority(text, 443)
    assert parts is None or (parts[0] and 0 < parts[1] < 65536)


def test_absolute_links_of_an_index_page_are_rewritten_and_relative_ones_kept():
    page = b'<a href="https://files.example/p/a.whl#sha256=1">a</a> <a href="../b.whl">b</a> {"u":"http://h:1/c"}'
    assert LinkRewriter(PROXY_URL).feed(page, last=True) == (
        b'<a href="http://127.0.0.1:3128/~/https/files.example/p/a.whl#sha256=1">a</a> <a href="../b.whl">b</a> '
        b'{"u":"http://127.0.0.1:3128/~/http/h:1/c"}'
    )
    proxied = proxied_path(PROXY_URL, "https://files.example/simple?x=1")
    assert str(proxied_url(proxied.removeprefix(PROXY_URL))) == "https://files.example/simple?x=1"
    assert proxied_url("/~/ftp/files.example/") is None
    assert proxied_url("/simple/") is None


links = st.sampled_from(
    [b"http://", b"https://h.example/", b"xhttp://h/", b"https", b"h" * 250, b"[::1]:8", b'"', b"/", b" "]
)


@given(st.lists(links, max_size=60), st.lists(st.integers(1, 700), min_size=1))
def test_a_page_in_pieces_is_rewritten_like_a_whole_one(parts: list[bytes], lengths: list[int]):
    page = b"".join(parts)
    whole, rewriting, at, out = LinkRewriter(PROXY_URL).feed(page, last=True), LinkRewriter(PROXY_URL), 0, b""
    for length in itertools.islice(itertools.cycle(lengths), len(page)):
        out += rewriting.feed(page[at : at + length])
        at += length
    assert out + rewriting.feed(b"", last=True) == whole


def test_rewriting_a_page_buffers_only_a_small_part():
    rewriting, given_out = LinkRewriter(PROXY_URL), 0
    for number in range(1, 101):
        given_out += len(rewriting.feed(b"h" * 4096))
        assert number * 4096 - given_out < 1024
