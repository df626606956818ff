"""Environment variables that Ray reads on import, for local nodes and for a cluster that a run joins."""

from __future__ import annotations

import os
import secrets
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
    "RAY_task_events_report_interval_ms": "0",
    "RAY_worker_oom_score_adjustment": "0",
}
"""The second keeps nodes on loopback: without it, Ray replaces 127.0.0.1 with this machine's outer address.  The third
gives actors the same priority as the Docker daemon.  The fourth ends the other processes of a killed head before the
containers' deadline.  The fifth lets Ray record no event of each call of an actor, which nothing here reads: its head
would keep 100,000 of them, about 3 KiB each.  The sixth makes actors no better choice than other processes for a kernel
without memory: they would be the first, before any sandbox."""
CLUSTER_RAY_ENVIRONMENT = {
    "RAY_health_check_period_ms": "3000",
    "RAY_health_check_timeout_ms": "15000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "120",
    "RAY_worker_oom_score_adjustment": "0",
}
"""Variables for ``ray start`` on every node of a cluster of several machines: an unreachable node counts as lost after
90 s, one whose Ray was killed after 15 s, and an unreachable head after 120 s.  The last one is explained
above."""
_ANSWER_S = 30.0
"""Seconds for a cluster to answer, including the start of Python."""


def resolve_ray_environment(address: str, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables to set before Ray is imported; ``address`` is empty for local nodes, which get a token of
    their own: whoever reaches Ray on loopback, any account of the machine, could run code as this one.  Raises
    UserError if no cluster answers: Ray's own client would retry for minutes and then end the process."""
    settings = dict(LOCAL_RAY_ENVIRONMENT) if not address or is_loopback_endpoint(address) else {}
    if not address:
        return settings | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    why = _connect_error(address)
    for mode in _auth_modes(env) if why is None else ():
        if is_healthy(address, {**env, **settings, **mode}):
            return settings | mode
        why = "its health check fails"
    raise UserError(
        f"no Ray cluster answers at {address} ({why}): start one with `ray start --head --port=6379`, or leave "
        "--address out to simulate the nodes here (of a run that is resumed: --set cluster.address=). A cluster with "
        "token authentication needs its token in ~/.ray/auth_token"
    )


def _connect_error(address: str) -> str | None:
    """Return why nothing can be reached there; None if something listens."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
    except (OSError, UnicodeError) as error:  # the second for an impossible host name
        return str(error)
    return None


def _auth_modes(env: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """Return the authentication modes to try, unless the user set one: ``ray start`` requires the token if one exists,
    other ways to start a cluster do not, and a client has to match."""
    token = Path(env.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if "RAY_AUTH_MODE" in env or not ("RAY_AUTH_TOKEN" in env or token.exists()):
        return ({},)
    return ({}, {"RAY_AUTH_MODE": "token"})


def is_healthy(address: str, env: Mapping[str, str]) -> bool:
    """Return whether the cluster at ``address`` answers a client whose environment is ``env``.  Blocks."""
    command = (sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address)
    none = subprocess.DEVNULL
    try:
        subprocess.run(command, env=env, stdin=none, stdout=none, stderr=none, timeout=_ANSWER_S, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return False
    return True
