"""The harnesses of Harbor and Terminal-Bench: how each writes a case, and what its oracle earns there."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from sandbox.docker.engine import DockerEngine
from sandbox.host import ensure_host
from sandbox.host_record import SandboxHost
from sandbox.images.store import ImageSettings, ImageStore
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from tools.harness_comparison.cases import ComparisonCase
from tools.harness_comparison.field_coverage import LIST_FIELDS

_MOST_S = 3600.0
_CONCURRENCY = "8"
"""Tasks at once: most of a task's time is the ten seconds that Compose waits for its containers to stop."""
_BUILD = "    build: {context: ., network: none}\n"
_OFFLINE = f"{_BUILD}    network_mode: none\n"
"""The engine may have no bridge, and no case needs a network."""
_INTERNAL = "networks: {default: {internal: true}}\n"
_PYTEST = ("attr", "iniconfig", "more-itertools", "packaging", "pkg-resources", "pluggy", "py", "pytest")
_PYTEST_PACKAGES = ("libpython3.11-stdlib", *(f"python3-{name}" for name in _PYTEST))
_TMUX_PACKAGES = ("tmux", "libevent-core-2.1-7", "libutempter0")


@dataclass(frozen=True, slots=True)
class Harbor:
    """Harbor's program, in its virtual environment."""

    program: Path
    name: str = "Harbor"

    def base_image(self) -> str:
        """Build an image with pytest, which tests may start."""
        return _image_with(_PYTEST_PACKAGES)

    def write(self, case: ComparisonCase, folder: Path, base_image: str) -> None:
        service = f"    {case.service}\n" if case.service else ""
        files = {
            "task.toml": f'version = "1.0"\n{case.settings}\n',
            "instruction.md": "Do it.\n",
            "environment/Dockerfile": _dockerfile(case, base_image),
            "environment/docker-compose.yaml": (
                f"services:\n  main:\n{_BUILD}{service}{case.services}{_INTERNAL}"
                if case.services
                else f"services:\n  main:\n{_OFFLINE}{service}"
            ),
            "solution/solve.sh": _script(case.solve),
            "tests/test.sh": case.test,
        }
        _write(folder, {path: text.replace("{base}", base_image) for path, text in (files | case.files).items()})
        for path, target in case.links.items():
            (folder / path).symlink_to(target)
        for path, time_s in case.modified_s.items():
            os.utime(folder / path, (time_s, time_s))
        for path, mode in case.modes.items():
            (folder / path).chmod(mode)

    def task_fields(self) -> list[str]:
        """Return the keys of its task.toml, with a dot between table and key."""
        command = [self.program.parent / "python", "-c", LIST_FIELDS]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

    def run(self, tasks: Path, scratch: Path) -> Mapping[str, str]:
        _run(self.program, ("run", "-y", "-p", tasks, "-a", "oracle", "-n", _CONCURRENCY, "--jobs-dir", scratch))
        results = [json.loads(path.read_text()) for path in scratch.glob("*/*/result.json")]
        return {Path(each["task_id"]["path"]).name: _harbor_outcome(each) for each in results}


def _harbor_outcome(result: Mapping[str, Any]) -> str:
    verified: dict[str, Any] = result["verifier_result"] or {}
    failed: dict[str, Any] = result["exception_info"] or {}
    rewards: dict[str, float] = verified.get("rewards") or {}
    if not rewards:
        return str(failed.get("exception_type", "nothing"))
    return f"{rewards.get('reward', fmean(rewards.values())):g}"


@dataclass(frozen=True, slots=True)
class TerminalBench:
    """The program of Terminal-Bench, in its virtual environment."""

    program: Path
    name: str = "Terminal-Bench"

    def base_image(self) -> str:
        """Build an image with tmux, which the harness needs."""
        return _image_with(_TMUX_PACKAGES)

    def write(self, case: ComparisonCase, folder: Path, base_image: str) -> None:
        service = f"    {case.service}\n" if case.service else ""
        names = "".join(
            f"    {key}: ${{T_BENCH_TASK_DOCKER_CLIENT_{variable}}}\n"
            for key, variable in (("image", "IMAGE_NAME"), ("container_name", "CONTAINER_NAME"))
        )
        logs = "".join(
            f"      - ${{T_BENCH_TASK_{kind}LOGS_PATH}}:${{T_BENCH_CONTAINER_{kind}LOGS_PATH}}\n"
            for kind in ("", "AGENT_")
        )
        settings = (
            "instruction: Do it.\nauthor_name: a\nauthor_email: a@b.example\ndifficulty: easy\ncategory: c\ntags: []\n"
            f"max_agent_timeout_sec: 60\nmax_test_timeout_sec: 60\ndisable_asciinema: true\n{case.settings}"
        )
        files = {
            "task.yaml": settings if "parser_name" in settings else f"{settings}parser_name: pytest\n",
            "Dockerfile": _dockerfile(case, base_image),
            "docker-compose.yaml": (
                f'services:\n  client:\n{_OFFLINE}{names}    command: ["sh", "-c", "sleep infinity"]\n'
                f"    environment:\n      - TEST_DIR=${{T_BENCH_TEST_DIR}}\n    volumes:\n{logs}{service}"
            ),
            "solution.sh": _script(case.solve),
            "run-tests.sh": case.test,
            "tests/unused": "",
        }
        _write(folder, files | case.files)

    def run(self, tasks: Path, scratch: Path) -> Mapping[str, str]:
        options = ("-a", "oracle", "--n-concurrent", _CONCURRENCY, "--output-path", scratch, "--run-id", "run")
        _run(self.program, ("run", "-p", tasks, *options, "--no-upload-results"))
        results = json.loads((scratch / "run" / "results.json").read_text())["results"]
        return {each["task_id"]: "1" if each["is_resolved"] else "0" for each in results}


def _image_with(names: Iterable[str]) -> str:
    """Build an image with Debian's packages of these names, which this machine downloads."""
    host = ensure_host()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", *names], cwd=folder, stdout=sys.stderr, check=True)
        packages = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    steps = f"FROM {host.base_image}\nCOPY *.deb /d/\nRUN dpkg --unpack /d/*.deb && rm -r /d\n"
    build = ImageBuild({"Dockerfile": steps.encode(), **packages})
    return asyncio.run(_build(host, Task("base", "", build=build, network=TaskNetwork(build=NetworkMode.NONE))))


async def _build(host: SandboxHost, task: Task) -> str:
    async with DockerEngine(host.docker_url) as engine:
        store = await ImageStore.open(engine, ImageSettings(host.home, host.base_image))
        async with store.reserve(task) as image:
            return image


def _run(program: Path, words: Iterable[object]) -> None:
    """Run a harness with Compose from its own environment.  Raises CalledProcessError, TimeoutExpired."""
    (compose,) = program.parent.parent.glob("lib/python*/site-packages/compose/docker-compose")
    with tempfile.TemporaryDirectory() as config:
        (Path(config) / "cli-plugins").mkdir()
        (Path(config) / "cli-plugins" / "docker-compose").symlink_to(compose)
        env = os.environ | {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "DOCKER_CONFIG": config,
            "DOCKER_HOST": ensure_host().docker_url,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        subprocess.run([program, *map(str, words)], env=env, timeout=_MOST_S, stdout=sys.stderr, check=True)


def _dockerfile(case: ComparisonCase, base_image: str) -> str:
    return f"FROM {base_image}\nWORKDIR /app\n{case.dockerfile}"


def _script(text: str) -> str:
    return text if text.startswith("#!") else f"#!/bin/bash\n{text}\n"


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        if path.endswith("/"):
            (folder / path).mkdir(parents=True)
            continue
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        (folder / path).chmod(0o755 if text.startswith("#!") else 0o644)
