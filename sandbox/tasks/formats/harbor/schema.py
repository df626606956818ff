"""The schema of Harbor's ``task.toml``, as far as it is used here."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from sandbox.tasks.container_files.compose_values import Mebibytes, absolute_path
from sandbox.tasks.task_grading import StepsReward

AGENT_SERVICE = "main"
"""Name of the agent's service in a compose file."""
COMPOSE_FILE = "docker-compose.yaml"
"""Harbor's name in ``environment/``; a ``docker-compose.yml`` there is material of the task."""
CONVERSATION_FILE = "trajectory.json"
"""An earlier conversation, with which an agent of Harbor begins."""
FOILS_FOLDER = "foils"
METADATA_PREFIX = "harbor."
"""Prefix of metadata keys that are not in Harbor's own ``[metadata]``."""
REPORTS = ("/logs/verifier/ctrf.json", "/logs/verifier/reward.json", "/logs/verifier/reward.txt")
"""Paths at which the tests leave their results."""
STEPS_FOLDER = "steps"
TESTS_IMAGE = frozenset({"Dockerfile", COMPOSE_FILE})
"""Files among the tests that define the image in which they run, if they run in one of their own."""
TEMPLATE = re.compile(r"\$\{(?P<name>[^}:]+)(?::-(?P<default>.*))?\}")
"""A variable's value that Harbor takes from the host, or else from the default."""


def _with_unit(value: object) -> object:
    if not isinstance(value, str) or value.strip()[-1:].isdigit():
        raise ValueError(f"{value!r} has no unit: write '512M' or '2G'")
    return value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _as_table(value: object) -> object:
    return {"source": value} if isinstance(value, str) else value


Sized = Annotated[Mebibytes, BeforeValidator(_with_unit)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
User = Annotated[str, Field(coerce_numbers_to_str=True)]
Variables = dict[str, str]


class HarborTable(BaseModel):
    """A table of ``task.toml``. Unknown keys are kept; Harbor ignores them."""

    model_config = ConfigDict(extra="allow")


class HarborNetworkMode(StrEnum):
    """Words for a network in ``task.toml``."""

    NO_NETWORK = "no-network"
    PUBLIC = "public"
    ALLOWLIST = "allowlist"


class HarborNetworkTable(HarborTable):
    """A table that may set the network of a phase."""

    network_mode: HarborNetworkMode | None = None
    allowed_hosts: list[Annotated[str, StringConstraints(strip_whitespace=True)]] | None = None


class HarborHealthcheck(HarborTable):
    """``[environment.healthcheck]``, with the defaults of Harbor."""

    command: str
    interval_sec: Positive = 5.0
    timeout_sec: Positive = 30.0
    start_period_sec: NotNegative = 0.0
    start_interval_sec: Positive = 5.0
    retries: Annotated[int, Field(ge=1)] = 3


class HarborEnvironment(HarborNetworkTable):
    """``[environment]``: image and limits of the container."""

    build_timeout_sec: Positive = 600.0
    docker_image: str = ""
    os: Annotated[str, BeforeValidator(_lower)] = "linux"
    cpus: Positive = 1.0
    memory: Sized | None = None
    memory_mb: Annotated[int, Field(gt=0)] = 2048
    storage: Sized | None = None
    storage_mb: Annotated[int, Field(gt=0)] = 10240
    allow_internet: bool | None = None
    env: Variables = Field(default_factory=dict[str, str])
    gpus: int | None = None
    gpu_types: list[str] | None = None
    tpu: dict[str, Any] | None = None
    mcp_servers: list[Any] = Field(default_factory=list[Any])
    skills_dir: str | None = None
    healthcheck: HarborHealthcheck | None = None
    workdir: Annotated[str, AfterValidator(absolute_path)] | None = None


class HarborCollect(HarborTable):
    """An entry of ``[[verifier.collect]]``."""

    command: str
    service: Annotated[str, Field(min_length=1)] = AGENT_SERVICE
    timeout_sec: Positive = 60.0
    user: User = ""


class HarborVerifier(HarborNetworkTable):
    """``[verifier]``: how the tests run."""

    timeout_sec: Positive = 600.0
    environment_mode: Literal["shared", "separate"] | None = None
    environment: HarborEnvironment | None = None
    env: Variables = Field(default_factory=dict[str, str])
    user: User = ""
    collect: list[HarborCollect] = Field(default_factory=list[HarborCollect])


class HarborAgent(HarborNetworkTable):
    """``[agent]``: the agent's limits."""

    timeout_sec: Positive | None = None
    user: User = ""
    env: Variables = Field(default_factory=dict[str, str])


class HarborSolution(HarborTable):
    """``[solution]``: the oracle."""

    env: Variables = Field(default_factory=dict[str, str])


class HarborArtifact(HarborTable):
    """An entry of ``artifacts``: a path, or a table."""

    source: str
    destination: str | None = None
    exclude: list[str] = Field(default_factory=list[str])
    service: str | None = None


Artifact = Annotated[HarborArtifact, BeforeValidator(_as_table)]


class HarborStep(HarborTable):
    """An entry of ``[[steps]]``; its files are in ``steps/NAME``."""

    name: Annotated[str, Field(pattern=r"^[^/]+$")]
    agent: HarborAgent = HarborAgent()
    verifier: HarborVerifier = HarborVerifier()
    min_reward: float | dict[str, float] | None = None
    healthcheck: HarborHealthcheck | None = None
    artifacts: list[Artifact] = Field(default_factory=list[HarborArtifact])


class HarborTask(HarborTable):
    """The whole ``task.toml``."""

    schema_version: object = None
    version: object = None
    task: object = None
    source: object = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    verifier: HarborVerifier = HarborVerifier()
    agent: HarborAgent = HarborAgent()
    environment: HarborEnvironment = HarborEnvironment()
    solution: HarborSolution = HarborSolution()
    artifacts: list[Artifact] = Field(default_factory=list[HarborArtifact])
    steps: list[HarborStep] = Field(default_factory=list[HarborStep], max_length=1000)
    multi_step_reward_strategy: StepsReward | None = None
