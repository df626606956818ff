"""Fixtures for every test: the machine's Docker engine, made ready once, and one Ray node."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from protocol.errors import UserError
from sandbox.host import SandboxHost, ensure_host

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def docker_engine() -> SandboxHost:
    """A Docker engine, the base image and the kit.  Where they cannot be had: a failure in CI, a skip elsewhere."""
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

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=80 * 2**20)
    yield
    ray.shutdown()
