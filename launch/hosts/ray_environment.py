"""What Ray reads from the environment when it is imported, to start nodes here or to join a cluster that answers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from protocol.errors import UserError
from protocol.processes.loopback import is_loopback_endpoint

LOCAL_RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_worker_niceness": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
}
"""The second keeps nodes on loopback: without it, Ray takes 127.0.0.1 for this machine's outer address.  The third lets
actors compete as equals with the Docker daemon.  A head that was killed does not come back: the fourth ends the rest of
its processes before the containers' deadline."""
CLUSTER_RAY_ENVIRONMENT = {
    "RAY_health_check_period_ms": "3000",
    "RAY_health_check_timeout_ms": "15000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "120",
}
"""For ``ray start`` on every node of a cluster of several machines: one whose cable is cut is given up after a minute
and a half, one whose Ray was killed after 15 s, and a head that cannot be reached after two minutes."""
_ANSWER_S = 30.0
"""For a cluster to answer, a Python's start included."""


def resolve_ray_environment(address: str, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables to set before Ray is imported.  Raises UserError when no cluster answers at ``address``, which may be
    empty: Ray's own client would go on trying for minutes, and end the process then."""
    settings = dict(LOCAL_RAY_ENVIRONMENT) if not address or is_loopback_endpoint(address) else {}
    if not address:
        return settings
    why = _connect_error(address)
    for mode in _auth_modes(env) if why is None else ():
        if _healthy(address, {**env, **settings, **mode}):
            return settings | mode
        why = "its health check fails"
    raise UserError(
        f"no Ray cluster answers at {address} ({why}): start one with `ray start --head --port=6379`, or leave "
        "--address out to simulate the nodes here (of a run that is resumed: --set cluster.address=). A cluster with "
        "token authentication needs its token in ~/.ray/auth_token"
    )


def _connect_error(address: str) -> str | None:
    """Why nothing can be reached there; None when something listens."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
    except (OSError, UnicodeError) as error:  # the second for what cannot be a name
        return str(error)
    return None


def _auth_modes(env: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """Ways to authenticate, unless the user has said one: ``ray start`` asks for the token where there is one, other
    ways to start a cluster do not, and a client has to do the same."""
    token = Path(env.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if "RAY_AUTH_MODE" in env or not ("RAY_AUTH_TOKEN" in env or token.exists()):
        return ({},)
    return ({}, {"RAY_AUTH_MODE": "token"})


def _healthy(address: str, env: Mapping[str, str]) -> bool:
    command = (sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address)
    none = subprocess.DEVNULL
    try:
        subprocess.run(command, env=env, stdin=none, stdout=none, stderr=none, timeout=_ANSWER_S, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return False
    return True
