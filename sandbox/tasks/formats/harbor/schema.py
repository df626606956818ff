"""The schema of Harbor's ``task.toml``, as far as it is used here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sandbox.tasks.container_files.compose_schema import Mebibytes

AGENT_SERVICE = "main"
"""Name of the agent's service in a compose file."""
FOILS_FOLDER = "foils"
METADATA_PREFIX = "harbor."
"""Prefix of metadata keys that are not in Harbor's own ``[metadata]``."""
REPORTS = ("/logs/verifier/ctrf.json", "/logs/verifier/reward.json", "/logs/verifier/reward.txt")
"""Paths at which the tests leave their results."""


def _with_unit(value: object) -> object:
    if not isinstance(value, str) or value.strip()[-1:].isdigit():
        raise ValueError(f"{value!r} has no unit: write '512M' or '2G'")
    return value


Sized = Annotated[Mebibytes, BeforeValidator(_with_unit)]
Positive = Annotated[float, Field(gt=0)]
RootUser = Literal["", "root", 0, "0"] | None
"""User whose commands run: here everything runs as root."""


class HarborTable(BaseModel):
    """A table of ``task.toml``.

    Keys that would change how a task runs in a way that is not supported must be empty; other unknown keys are kept.
    """

    model_config = ConfigDict(extra="allow")


class HarborVerifier(HarborTable):
    """``[verifier]``: how the tests run."""

    timeout_sec: Positive = 600.0
    environment_mode: Literal["shared", "separate"] = "shared"
    env: dict[str, Any] = Field(default_factory=dict[str, Any], max_length=0)
    user: RootUser = None


class HarborAgent(HarborTable):
    """``[agent]``: the agent's limits."""

    timeout_sec: Positive | None = None
    user: RootUser = None


class HarborEnvironment(HarborTable):
    """``[environment]``: image and limits of the container."""

    build_timeout_sec: Positive = 600.0
    docker_image: str = ""
    cpus: Positive = 1.0
    memory: Sized | None = None
    memory_mb: Annotated[int, Field(gt=0)] = 2048
    storage: Sized | None = None
    storage_mb: Annotated[int, Field(gt=0)] = 10240
    allow_internet: bool | None = None
    env: dict[str, str] = Field(default_factory=dict[str, str])
    gpus: Literal[0] = 0
    mcp_servers: list[Any] = Field(default_factory=list[Any], max_length=0)
    skills_dir: None = None


class HarborSolution(HarborTable):
    """``[solution]``: the oracle's variables, which are not supported."""

    env: dict[str, Any] = Field(default_factory=dict[str, Any], max_length=0)


class HarborTask(HarborTable):
    """The whole ``task.toml``."""

    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    verifier: HarborVerifier = HarborVerifier()
    agent: HarborAgent = HarborAgent()
    environment: HarborEnvironment = HarborEnvironment()
    solution: HarborSolution = HarborSolution()
    artifacts: list[Annotated[str, Field(pattern="^/")]] = Field(default_factory=list[str])
    steps: list[Any] = Field(default_factory=list[Any], max_length=0)
