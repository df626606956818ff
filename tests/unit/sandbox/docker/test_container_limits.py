"""If these fail, a limit that Docker would read as "no limit" is accepted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol.errors import UserError
from sandbox.docker.container_spec import ContainerLimits


@pytest.mark.parametrize("limit", ["memory_bytes", "pids", "cpus", "file_bytes", "disk_bytes", "open_files"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_limit_must_be_positive_and_finite(limit: str, value: float) -> None:
    with pytest.raises(UserError, match="must be positive and finite"):
        replace(ContainerLimits(), **{limit: value})
