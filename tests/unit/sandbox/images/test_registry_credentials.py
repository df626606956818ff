"""If these fail, private images cannot be pulled although `docker login` was done, or a password goes to a registry
that it is not for."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sandbox.images.registry_credentials import (
    DOCKER_HUB,
    RegistryAccess,
    RegistryCredentials,
    docker_config_file,
    registry_of,
)
from sandbox.tasks.task_containers import ImageBuild

HELPER = """#!/bin/sh
test "$1" = get || exit 9
read -r registry
case "$registry" in
  vault.test) echo '{"ServerURL": "vault.test", "Username": "ann", "Secret": "hers"}' ;;
  token.test) echo '{"Username": "<token>", "Secret": "abc"}' ;;
  broken.test) echo locked >&2; exit 1 ;;
  odd.test) echo '[]' ;;
  *) echo 'credentials not found in native keychain'; exit 1 ;;
esac
"""


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install a credential helper and return its name."""
    program = tmp_path / "docker-credential-test"
    program.write_text(HELPER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return "test"


def credentials(folder: Path, config: object) -> RegistryCredentials:
    (folder / "config.json").write_text(json.dumps(config))
    return RegistryCredentials(folder / "config.json")


def decoded(access: RegistryAccess) -> Any:
    (value,) = access.headers.values()
    return json.loads(base64.urlsafe_b64decode(value))


def build(dockerfile: str, **args: str) -> ImageBuild:
    return ImageBuild({"Dockerfile": dockerfile.encode()}, args=args)


AUTH = base64.b64encode(b"bob:pa:ss").decode()


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("debian", DOCKER_HUB),
        ("library/debian:12", DOCKER_HUB),
        ("docker.io/library/debian", DOCKER_HUB),
        ("index.docker.io/a/b", DOCKER_HUB),
        ("registry.test/a/b:1", "registry.test"),
        ("localhost/a", "localhost"),
        ("host:5000/a@sha256:" + "0" * 64, "host:5000"),
    ],
)
def test_the_registry_of_an_image(image: str, registry: str):
    assert registry_of(image) == registry


@pytest.mark.parametrize("key", ["registry.test", "https://registry.test", "https://registry.test/v1/"])
def test_a_password_of_the_file_goes_to_its_registry_alone(tmp_path: Path, key: str):
    given = credentials(tmp_path, {"auths": {key: {"auth": AUTH}}, "HttpHeaders": {}})
    login = {"username": "bob", "password": "pa:ss", "serveraddress": "registry.test"}
    access = given.access_for_pull("registry.test/a:1")
    assert (list(access.headers), decoded(access)) == (["X-Registry-Auth"], login)
    assert given.access_for_pull("other.test/a:1") == RegistryAccess()
    assert given.access_for_pull("debian") == RegistryAccess()
    access = given.access_for_build(build("FROM registry.test/a:1\n"))
    assert (list(access.headers), decoded(access)) == (["X-Registry-Config"], {"registry.test": login})
    assert given.access_for_build(build("FROM other.test/a:1\n")) == RegistryAccess()
    assert decoded(given.access_for_build(build("ARG R\nFROM $R/a\n", R="registry.test"))) == {"registry.test": login}


def test_docker_hub_has_its_own_name(tmp_path: Path):
    given = credentials(tmp_path, {"auths": {DOCKER_HUB: {"identitytoken": "xyz"}}})
    login = {"identitytoken": "xyz", "serveraddress": DOCKER_HUB}
    assert decoded(given.access_for_pull("debian:12")) == login
    assert decoded(given.access_for_build(build("FROM debian:12\n"))) == {DOCKER_HUB: login}


def test_helpers_are_asked_and_one_for_a_registry_comes_before_the_store(tmp_path: Path, helper: str):
    stored = credentials(tmp_path, {"credsStore": helper, "auths": {"vault.test": {}}})
    login = {"username": "ann", "password": "hers", "serveraddress": "vault.test"}
    assert decoded(stored.access_for_pull("vault.test/a")) == login
    assert decoded(stored.access_for_build(build("FROM vault.test/a\n"))) == {"vault.test": login}
    assert stored.access_for_pull("unknown.test/a") == RegistryAccess()
    own = credentials(tmp_path, {"credsStore": "absent", "credHelpers": {"token.test": helper}})
    assert decoded(own.access_for_pull("token.test/a")) == {"identitytoken": "abc", "serveraddress": "token.test"}


@pytest.mark.parametrize(
    ("config", "image", "trouble"),
    [
        ({"credsStore": "absent"}, "debian", r"docker-credential-absent .*does not work.*credsStore"),
        ({"credsStore": "test"}, "broken.test/a", r"docker-credential-test gives no credentials .*: locked"),
        ({"credsStore": "test"}, "odd.test/a", r"without Username and Secret"),
        ({"auths": {"a.test": {"auth": "?"}}}, "a.test/a", r"`auth` of a\.test .*not base64"),
        ({"auths": 7}, "debian", r"config\.json cannot be read as Docker's configuration"),
    ],
)
@pytest.mark.usefixtures("helper")
def test_what_fails_is_said_and_does_not_prevent_what_needs_no_password(
    tmp_path: Path, config: object, image: str, trouble: str
):
    access = credentials(tmp_path, config).access_for_pull(image)
    assert access.headers == {}
    assert re.search(trouble, access.trouble)


@pytest.mark.usefixtures("helper")
def test_a_helper_that_fails_does_not_keep_another_registrys_password_from_a_build(tmp_path: Path):
    given = credentials(
        tmp_path, {"credsStore": "absent", "auths": {"a.test": {}}, "credHelpers": {"vault.test": "test"}}
    )
    access = given.access_for_build(build("FROM vault.test/a AS first\nFROM a.test/b\n"))
    assert [*decoded(access)] == ["vault.test"]
    assert len(access.trouble.splitlines()) == 2  # of Docker Hub, and of a.test


def test_without_a_file_there_are_no_credentials(tmp_path: Path):
    assert RegistryCredentials(tmp_path / "config.json").access_for_pull("registry.test/a") == RegistryAccess()
    assert docker_config_file({"DOCKER_CONFIG": str(tmp_path)}) == tmp_path / "config.json"
    assert docker_config_file({}) == Path.home() / ".docker" / "config.json"
