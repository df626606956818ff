"""Fixtures for every test: the machine's Docker engine, made ready once, and one Ray node."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import uvloop
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from protocol.errors import UserError
from sandbox.host import ensure_host
from sandbox.host_record import SandboxHost

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

_USES_DOCKER = re.compile(r"\bmark\.docker\b|\bdocker_engine\b")
_RAY_TRIES = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--file-durations", action="store_true", help="print the seconds that each test file took")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what ``first_case`` leaves out."""
    seen: set[str] = set()
    for item in items:
        if item.get_closest_marker("first_case") and not any(map(item.get_closest_marker, ("slow", "chaos", "gpu"))):
            test = item.nodeid.partition("[")[0]
            if test in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(test)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests of actors and attacks on them on uvloop, as Ray does: its transports are not of asyncio's classes."""
    folders = item.path.relative_to(config.rootpath).parts
    as_in_ray = "actors" in folders or "security" in folders
    return {"uvloop": uvloop.new_event_loop} if as_in_ray else {"asyncio": asyncio.new_event_loop}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """With ``--file-durations``, one line per file: setup, call and teardown of all its tests."""
    if not config.getoption("--file-durations"):
        return
    seconds = Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.location[0]] += report.duration
    terminalreporter.section("seconds by file")
    for file, total in seconds.most_common():
        terminalreporter.write_line(f"{total:8.1f}  {file}")


class _FileScheduling(LoadScopeScheduling):
    """Give pytest-xdist's workers whole files, and all files that use the machine's one Docker engine to one worker:
    their proofs that nothing leaked compare all that the engine holds."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "docker" if _uses_docker(file) else file


@cache
def _uses_docker(file: str) -> bool:
    return _USES_DOCKER.search(Path(file).read_text()) is not None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return _FileScheduling(config, log)


@pytest.fixture(scope="session")
def docker_engine() -> SandboxHost:
    """A Docker engine, the base image and the toolchain. If they cannot be set up, fail in CI and skip elsewhere."""
    try:
        return ensure_host()
    except UserError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"sandboxes cannot run here: {error}")
        pytest.skip(f"sandboxes cannot run here: {error}")


@pytest.fixture(scope="session")
def ray_node() -> Iterator[None]:
    """For every test in this process that needs none of its own: there can be one at a time."""
    import ray

    for left in reversed(range(_RAY_TRIES)):
        try:
            ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=80 * 2**20)
            break
        except Exception:  # Ray raises the bare class for a node that is not up in 30 s
            ray.shutdown()
            if not left:
                raise
    yield
    ray.shutdown()
