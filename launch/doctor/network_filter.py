"""Says where network ``full`` leads past the egress proxy, which filters addresses.  Pure."""

from __future__ import annotations

from launch.doctor.finding import CheckName, Finding, ok, warning
from sandbox.tasks.network_policy import NetworkPolicy


def check_network_filter(url: str, granted: NetworkPolicy, *, has_bridge: bool) -> list[Finding]:
    """Return a warning if agents may have a network that the engine's bridge forwards; of builds a remark."""
    if not has_bridge:
        return []
    unfiltered = (
        f"not filtered by the engine at {url}: there it leads to this machine's servers, its neighbours and a cloud's "
        "metadata"
    )
    if granted in {NetworkPolicy.NONE, NetworkPolicy.PROXY}:
        return [ok(CheckName.NETWORK, f"agents have no network `full`; that of images' builds is {unfiltered}")]
    return [
        warning(
            CheckName.NETWORK,
            f"network `full`, which sandbox.network = {granted} gives to agents, is {unfiltered}",
            "set sandbox.network = proxy, forbid these addresses in the machine's packet filter (chain INPUT for its "
            "own servers; for others FORWARD, of Docker DOCKER-USER), or use the engine of `longshore host up`, which "
            "has no bridge",
        )
    ]
