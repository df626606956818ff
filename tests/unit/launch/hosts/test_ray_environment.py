"""If these fail, a run waits for a cluster that is not there, is refused for want of a token, or leaves loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from launch.hosts import ray_environment as module
from launch.hosts.ray_environment import LOCAL_RAY_ENVIRONMENT, resolve_ray_environment
from protocol.errors import UserError


@pytest.fixture
def address() -> Iterator[str]:
    """Something listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def answers_to(monkeypatch: pytest.MonkeyPatch, *modes: str) -> None:
    """A cluster is healthy for clients in one of these authentication modes."""

    def healthy(address: str, env: Mapping[str, str]) -> bool:
        return env.get("RAY_AUTH_MODE", "none") in modes

    monkeypatch.setattr(module, "is_healthy", healthy)


def test_nodes_of_this_machine_alone_stay_on_loopback(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    answers_to(monkeypatch, "none")
    assert resolve_ray_environment(address, {}) == LOCAL_RAY_ENVIRONMENT
    assert resolve_ray_environment("", {}).items() >= LOCAL_RAY_ENVIRONMENT.items()


def test_nodes_of_this_machine_alone_have_a_token_of_their_own_at_each_start() -> None:
    """Whatever the account has for other clusters."""
    found = [resolve_ray_environment("", {"RAY_AUTH_TOKEN": "x", "RAY_AUTH_MODE": "disabled"}) for _ in range(2)]
    assert [each["RAY_AUTH_MODE"] for each in found] == ["token", "token"]
    assert len({"x", *(each["RAY_AUTH_TOKEN"] for each in found)}) == 3


def test_the_token_is_used_if_the_cluster_requires_it_unless_the_user_set_a_mode(
    monkeypatch: pytest.MonkeyPatch, address: str, tmp_path: Path
) -> None:
    token, none = tmp_path / "token", {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}
    token.write_text("x")
    environment = {"RAY_AUTH_TOKEN_PATH": str(token)}
    answers_to(monkeypatch, "none", "token")
    assert resolve_ray_environment(address, environment) == LOCAL_RAY_ENVIRONMENT
    answers_to(monkeypatch, "token")
    assert resolve_ray_environment(address, environment) == resolve_ray_environment(
        address, none | {"RAY_AUTH_TOKEN": "x"}
    )
    assert resolve_ray_environment(address, environment) == LOCAL_RAY_ENVIRONMENT | {"RAY_AUTH_MODE": "token"}
    for without in (none, environment | {"RAY_AUTH_MODE": "disabled"}):
        with pytest.raises(UserError, match="health check fails"):
            resolve_ray_environment(address, without)


def test_an_address_without_a_listener_is_refused_with_both_remedies() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match=rf"answers at {address} \(.*refused.*ray start --head.*leave"):
            resolve_ray_environment(address, {})


def test_an_invalid_host_name_is_refused_as_an_address() -> None:
    with pytest.raises(UserError, match=r"no Ray cluster answers at a\.\.b:6379"):
        resolve_ray_environment("a..b:6379", {})
