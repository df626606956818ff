"""A name leads elsewhere than where it was vetted, or an agent's names fill the gate's memory, when this fails."""

from __future__ import annotations

from sandbox.gate.upstream import MOST_PINNED, Vetted, _Pinned


async def addresses(pinned: _Pinned, host: str) -> list[str]:
    return [each["host"] for each in await pinned.resolve(host, 443)]


async def test_the_latest_names_are_known_at_their_vetted_addresses_and_no_others():
    pinned = _Pinned()
    for number in range(MOST_PINNED + 10):
        pinned.pin(Vetted("often.example", 443, ("192.0.2.1",)))
        pinned.pin(Vetted(f"{number}.example", 443, ("192.0.2.2", "2001:db8::1")))
    assert await addresses(pinned, "often.example") == ["192.0.2.1"]
    assert await addresses(pinned, f"{MOST_PINNED + 9}.example") == ["192.0.2.2", "2001:db8::1"]
    assert await addresses(pinned, "0.example") == []
    assert len(pinned._known) == MOST_PINNED
