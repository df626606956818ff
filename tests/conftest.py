"""Fixtures for every test: the machine's Docker engine, made ready once."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from protocol.errors import UserError
from sandbox.host import Host, ensure

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def docker_engine() -> Host:
    """A Docker engine, the base image and the kit.  Where they cannot be had: a failure in CI, a skip elsewhere."""
    try:
        return ensure()
    except UserError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"sandboxes cannot run here: {error}")
        pytest.skip(f"sandboxes cannot run here: {error}")
