"""If these fail, raw words of Ray stand between a run's lines, or another Ray user's clusters are mixed up."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from launch.hosts.cluster_nodes import isolate_default_address
from launch.hosts.ray_log import redirect_ray_log


def test_output_of_ray_goes_only_to_its_log_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from ray._private import worker

    printed, levels = worker.print_to_stdstream, [handler.level for handler in logging.getLogger("ray").handlers]
    with redirect_ray_log(tmp_path / "ray.log"):
        message = {"lines": ["The actor died. Infinite retries remaining."], "pid": "raylet", "is_err": False}
        worker.print_to_stdstream(message, ignore_prefix=False)
        logging.getLogger("ray._private.utils").warning("Overwriting previous Ray address")
    assert capfd.readouterr() == ("", "")
    logged = (tmp_path / "ray.log").read_text()
    assert "(raylet) The actor died. Infinite retries remaining." in logged
    assert "Overwriting previous Ray address" in logged
    assert worker.print_to_stdstream is printed
    assert [handler.level for handler in logging.getLogger("ray").handlers] == levels


def test_errors_of_ray_are_shown_too(tmp_path: Path) -> None:
    import ray  # noqa: F401  it configures its logger

    shown = logging.getLogger("ray").handlers[0]
    with redirect_ray_log(tmp_path / "ray.log"):
        assert shown.level == logging.ERROR
        logging.getLogger("ray").error("the cluster is gone")
    assert "the cluster is gone" in (tmp_path / "ray.log").read_text()


def test_local_nodes_leave_the_machines_default_address_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._common.utils import get_ray_address_file
    from ray._private.utils import write_ray_address

    monkeypatch.setenv("RAY_TMPDIR", "/before")
    with isolate_default_address(tmp_path):
        assert Path(get_ray_address_file(None)).is_relative_to(tmp_path)
        write_ray_address("127.0.0.1:1")
    assert os.environ["RAY_TMPDIR"] == "/before"
