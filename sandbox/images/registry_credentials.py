"""Credentials of registries, as Docker's configuration file has them: ``auths``, ``credsStore`` and ``credHelpers``.

A helper is a program ``docker-credential-NAME``: ``get`` reads a registry's name from standard input and prints
``{"Username": …, "Secret": …}``; the user ``<token>`` stands for an identity token.  Source:
docs.docker.com/reference/cli/docker/login (credential helpers), and the engine's API (X-Registry-Auth,
X-Registry-Config).  Mirrors are a setting of the daemon.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from pydantic import BaseModel, Field, ValidationError

from sandbox.tasks.task_containers import ImageBuild

DOCKER_HUB = "https://index.docker.io/v1/"
"""The name of Docker Hub in Docker's configuration."""
_HELPER_S = 30.0
_TOKEN_USER = "<token>"  # noqa: S105  the protocol's word for "the secret is a token"
_NOT_FOUND = "credentials not found"
"""What a helper says about a registry that it does not know."""

Login: TypeAlias = dict[str, str]
"""Credentials of one registry, with the engine's keys; empty for none."""


class RegistryAccess(NamedTuple):
    """What a request to the engine needs for registries that ask who pulls."""

    headers: Mapping[str, str] = {}
    trouble: str = ""
    """Why credentials are missing that the configuration promises; it matters only where a registry refuses."""


NO_ACCESS = RegistryAccess()


class _CredentialsError(Exception):
    """The configuration file or a helper fails."""


class _FileLogin(BaseModel):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""
    registrytoken: str = ""


class _DockerConfig(BaseModel):
    auths: dict[str, _FileLogin] | None = None
    store: str = Field(default="", validation_alias="credsStore")
    helpers: dict[str, str] | None = Field(default=None, validation_alias="credHelpers")


class _HelperLogin(BaseModel):
    username: str = Field(validation_alias="Username")
    secret: str = Field(validation_alias="Secret")


def docker_config_file(environment: Mapping[str, str] | None = None) -> Path:
    """Return the path of Docker's configuration file: in ``$DOCKER_CONFIG``, or in ``.docker`` of the home folder."""
    folder = (os.environ if environment is None else environment).get("DOCKER_CONFIG")
    return (Path(folder) if folder else Path.home() / ".docker") / "config.json"


def registry_of(image: str) -> str:
    """Return the registry of an image's name, as Docker's configuration names it."""
    first, slash, _ = image.partition("/")
    names_host = slash and ("." in first or ":" in first or first == "localhost" or first != first.lower())
    return first if names_host and first not in {"docker.io", _host(DOCKER_HUB)} else DOCKER_HUB


@dataclass(frozen=True, slots=True)
class RegistryCredentials:
    """The credentials of one configuration file, which is read anew for each image.  Its methods block."""

    file: Path

    def registries(self) -> frozenset[str]:
        """Return the registries that the file names; none if it cannot be read."""
        try:
            config = self._config()
        except _CredentialsError:
            return frozenset()
        return frozenset(_host(name) for name in (*(config.auths or ()), *(config.helpers or ())))

    def has_login(self, registry: str) -> bool:
        """Return whether the file or its helper has credentials for a registry; a helper that fails has none."""
        try:
            return bool(_find_login(self._config(), registry))
        except _CredentialsError:
            return False

    def access_for_pull(self, image: str) -> RegistryAccess:
        """Return what a request that pulls ``image`` needs."""
        try:
            login = _find_login(self._config(), registry_of(image))
        except _CredentialsError as error:
            return RegistryAccess({}, str(error))
        return _with_header("X-Registry-Auth", login)

    def access_for_build(self, build: ImageBuild) -> RegistryAccess:
        """Return what a build needs for Docker Hub and the registries that its Dockerfile names."""
        text = build.files.get(build.dockerfile, b"").decode(errors="replace") + "\n".join(build.args.values())
        try:
            config = self._config()
        except _CredentialsError as error:
            return RegistryAccess({}, str(error))
        logins: dict[str, Login] = {}
        trouble: list[str] = []
        for registry in (DOCKER_HUB, *sorted(host for host in self.registries() if host in text)):
            try:
                login = _find_login(config, registry)
            except _CredentialsError as error:
                trouble.append(str(error))
            else:
                logins |= {registry: login} if login else {}
        return _with_header("X-Registry-Config", logins)._replace(trouble="\n".join(trouble))

    def _config(self) -> _DockerConfig:
        try:
            return _DockerConfig.model_validate_json(self.file.read_bytes())
        except FileNotFoundError:
            return _DockerConfig()
        except (OSError, ValidationError) as error:
            raise _CredentialsError(f"{self.file} cannot be read as Docker's configuration: {error}") from error


def _with_header(name: str, value: Mapping[str, object]) -> RegistryAccess:
    encoded = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
    return RegistryAccess({name: encoded}) if value else NO_ACCESS


def _host(registry: str) -> str:
    return registry.rpartition("://")[2].partition("/")[0]


def _find_login(config: _DockerConfig, registry: str) -> Login:
    host = _host(registry)
    helpers = {_host(name): helper for name, helper in (config.helpers or {}).items()}
    if helper := helpers.get(host, config.store):
        return _ask_helper(helper, registry)
    found = {_host(name): login for name, login in (config.auths or {}).items()}.get(host, _FileLogin())
    login = found.model_dump(exclude={"auth"})
    if found.auth:
        try:
            user_and_password = base64.b64decode(found.auth, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise _CredentialsError(f"`auth` of {registry} in Docker's configuration is not base64 text") from error
        login["username"], _, login["password"] = user_and_password.partition(":")
    given = {key: value for key, value in login.items() if value}
    return {**given, "serveraddress": registry} if given else {}


def _ask_helper(helper: str, registry: str) -> Login:
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"], input=registry, capture_output=True, text=True, check=False, timeout=_HELPER_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _CredentialsError(
            f"the credential helper {program} of Docker's configuration does not work ({error}): repair it, or remove "
            "it from credsStore and credHelpers"
        ) from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        if _NOT_FOUND in said.lower():
            return {}
        raise _CredentialsError(f"{program} gives no credentials for {registry}: {said}")
    try:
        login = _HelperLogin.model_validate_json(done.stdout)
    except ValidationError as error:
        raise _CredentialsError(f"{program} answers for {registry} without Username and Secret") from error
    if login.username == _TOKEN_USER:
        return {"identitytoken": login.secret, "serveraddress": registry}
    return {"username": login.username, "password": login.secret, "serveraddress": registry}
