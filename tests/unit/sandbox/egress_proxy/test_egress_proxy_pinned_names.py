"""If these fail, a name leads to another address than the vetted one, or an agent's names fill the proxy's memory."""

from __future__ import annotations

from sandbox.egress_proxy.upstream import MAX_PINNED_NAMES, PinnedResolver, VettedHost


async def addresses(pinned: PinnedResolver, host: str) -> list[str]:
    return [each["host"] for each in await pinned.resolve(host, 443)]


async def test_only_the_latest_pinned_names_resolve_to_their_vetted_addresses():
    pinned = PinnedResolver()
    for number in range(MAX_PINNED_NAMES + 10):
        pinned.pin(VettedHost("often.example", 443, ("192.0.2.1",)))
        pinned.pin(VettedHost(f"{number}.example", 443, ("192.0.2.2", "2001:db8::1")))
    assert await addresses(pinned, "often.example") == ["192.0.2.1"]
    assert await addresses(pinned, f"{MAX_PINNED_NAMES + 9}.example") == ["192.0.2.2", "2001:db8::1"]
    assert await addresses(pinned, "0.example") == []
    assert len(pinned) == MAX_PINNED_NAMES
