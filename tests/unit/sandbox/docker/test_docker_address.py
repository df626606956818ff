"""If these fail, a user's DOCKER_HOST leads to another engine, or to one without its TLS."""

from __future__ import annotations

import pytest

from protocol.errors import UserError
from sandbox.docker.address import DockerAddress, docker_address_from_environment


@pytest.mark.parametrize(
    "url", ["unix:///run/x/docker.sock", "tcp://127.0.0.1:2375", "tcp://[::1]:9", "tcp://box:2376?certs=/a%20b"]
)
def test_a_parsed_address_prints_as_written(url: str) -> None:
    assert str(DockerAddress.parse(url)) == url


def test_default_ports_may_be_left_out() -> None:
    assert DockerAddress.parse("tcp://box").port == 2375
    assert DockerAddress.parse("tcp://box?certs=/c").port == 2376


@pytest.mark.parametrize(
    "url", ["", "docker", "ssh://box", "tcp://", "tcp://box:port", "unix://run/x", "tcp://b?cert=/c"]
)
def test_an_invalid_address_is_refused_with_the_valid_forms(url: str) -> None:
    with pytest.raises(UserError, match=r"unix:///path, tcp://host:port"):
        DockerAddress.parse(url)


def test_the_environment_of_dockers_own_client_is_understood() -> None:
    tls = {"DOCKER_HOST": "tcp://box:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/c"}
    assert docker_address_from_environment(tls) == "tcp://box:2376?certs=/c"
    assert docker_address_from_environment(tls | {"DOCKER_TLS_VERIFY": ""}) == "tcp://box:2376"
    assert docker_address_from_environment(tls | {"DOCKER_HOST": "unix:///s"}) == "unix:///s"
    assert docker_address_from_environment({}) == ""


def test_missing_certificates_are_a_user_error(tmp_path) -> None:
    with pytest.raises(UserError, match="DOCKER_CERT_PATH"):
        DockerAddress.parse(f"tcp://127.0.0.1:1?certs={tmp_path}").tls()
