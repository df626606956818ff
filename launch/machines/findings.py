"""What one node must have for a run, looked at on the node itself.

:func:`examine` is given to every node as it is (:mod:`.checking`) and says only what is wrong, each with its fix.  It
starts nothing and leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import shutil
from collections.abc import Generator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from launch.config import RunConfig
from launch.nodes import Role
from launch.preflight import check_devices, check_sandboxes
from protocol.errors import UserError

_ROOT = Path(__file__).resolve().parents[2]
_ROOMS = ("protocol", "sandbox", "actors", "learner", "launch")
_CLOCK_S = 2.0
"""By more two machines' events cannot be told apart by their times."""
_PACKAGES = ("ray", "torch", "sglang", "transformers", "pyzmq")


class Check(StrEnum):
    """What is looked at."""

    ANSWER = "answer"
    CODE = "code"
    PACKAGES = "packages"
    CLOCK = "clock"
    DISK = "disk"
    DOCKER = "docker"
    GPU = "gpu"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something is wrong on a node."""

    check: Check
    problem: str
    fix: str
    role: Role | None = None
    """What the node cannot be used for; None: for nothing."""

    def __str__(self) -> str:
        return f"{self.problem}: {self.fix}" if self.fix else self.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a run asks of a node.  What is about versions is the driver's own, to be compared with."""

    python: str
    packages: dict[str, str]
    code: str
    """Digest of our own files."""
    docker: bool
    """Agents have their sandboxes on their node's Docker engine."""
    image: str
    harness: bool
    """The agent is a program in its sandbox."""
    gpu: bool
    """Engines compute on one."""
    scratch: Path
    free_mb: int


def question(config: RunConfig) -> Question:
    """What the run that ``config`` describes asks."""
    return Question(
        python=platform.python_version(),
        packages=_packages(),
        code=code_digest(),
        docker=config.sandbox.own,
        image=config.sandbox.image,
        harness=bool(config.agent.harness),
        gpu=config.engine.device == "cuda",
        scratch=config.cluster.scratch_dir,
        free_mb=config.run.disk_reserve_mb,
    )


def examine(asked: Question) -> tuple[Finding, ...]:
    """What is wrong on this machine."""
    return (*_code(asked), *_disk(asked), *_docker(asked), *_gpu(asked))


def clock_finding(behind_s: float, uncertain_s: float) -> tuple[Finding, ...]:
    """``behind_s``: how far this node's clock was behind the driver's, known as exactly as the answer took."""
    if abs(behind_s) - uncertain_s <= _CLOCK_S:
        return ()
    which = "behind" if behind_s > 0 else "ahead of"
    return (
        Finding(Check.CLOCK, f"its clock is {abs(behind_s):.0f} s {which} the driver's", "let chrony or ntpd set both"),
    )


def _code(asked: Question) -> Generator[Finding]:
    if asked.python != (python := platform.python_version()):
        problem = f"Python {python}, and the driver has {asked.python}"
        yield Finding(Check.CODE, problem, "start its Ray from an environment with that one")
    if asked.code != code_digest():
        problem = f"other code of longshore in {_ROOT} than the driver's"
        yield Finding(Check.CODE, problem, "bring both to the same commit")
    here = _packages()
    other = [
        f"{name} {here[name] or 'none'} for {version}"
        for name, version in asked.packages.items()
        if here[name] != version
    ]
    if other:
        yield Finding(Check.PACKAGES, f"other packages than the driver's: {', '.join(other)}", "run `make setup` there")


def _disk(asked: Question) -> Generator[Finding]:
    there = next(path for path in (asked.scratch.absolute(), *asked.scratch.absolute().parents) if path.exists())
    free_mb = shutil.disk_usage(there).free >> 20
    if free_mb < asked.free_mb:
        problem = f"{there} has {free_mb} MB free, and weights and logs need {asked.free_mb}"
        yield Finding(Check.DISK, problem, "free some space there, or --set cluster.scratch_dir=FOLDER")


def _docker(asked: Question) -> Generator[Finding]:
    if not asked.docker:
        return
    try:
        check_sandboxes(asked.image, harness=asked.harness)
    except UserError as error:
        yield Finding(Check.DOCKER, str(error), "", Role.WORKER)


def _gpu(asked: Question) -> Generator[Finding]:
    if not asked.gpu:
        return
    try:
        check_devices({"engine.device": "cuda"})
    except UserError:
        yield Finding(Check.GPU, "no GPU", "", Role.ENGINE)


def _packages() -> dict[str, str]:
    return {name: _version(name) for name in _PACKAGES}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name).partition("+")[0]  # of torch, CPU and CUDA builds are one version
    except importlib.metadata.PackageNotFoundError:
        return ""


def code_digest(root: Path = _ROOT) -> str:
    """Of all that we import."""
    whole = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            whole.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()
