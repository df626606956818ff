"""The light rooms stay light: a reader on a laptop, ``--help`` and a wrong key never pay for torch, ray or sglang."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "ray", "sglang", "transformers", "megatron"}
LIGHT = [
    "protocol",
    "sandbox.tasks",
    "launch.config",
    "launch.run.arguments",
    "protocol.cli",
    "launch.run_records.run_directory",
    "launch.monitor",
    "launch.cli",
    "launch.cluster",
    "launch.sweep",
    "launch.control.ctl",
    "launch.runs",
    "tests.support.fake_cluster",
    "tests.support.fake_evaluate",
]

PROBE = """
import importlib, json, pkgutil, sys
root = importlib.import_module(sys.argv[1])
for found in pkgutil.walk_packages(getattr(root, "__path__", []), root.__name__ + "."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def loaded(package: str) -> set[str]:
    """Return the modules that a clean process has loaded after importing all of a package."""
    assert importlib.util.find_spec(package) is not None
    done = subprocess.run([sys.executable, "-c", PROBE, package], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("package", LIGHT)
def test_importing_it_loads_nothing_heavy(package: str) -> None:
    assert not HEAVY & loaded(package)


@pytest.mark.parametrize("command", ["launch.cluster", "launch.sft.__main__", "launch.bench.__main__"])
def test_what_tells_ray_to_stay_on_loopback_runs_before_ray_is_imported(command: str) -> None:
    """Ray reads its environment once; told too late, a driver looks for its own nodes at the machine's outer address,
    for an hour."""
    probe = f"import {command}, sys; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_the_monitor_starts_without_the_configuration() -> None:
    """Its schemas take longer to import than a run of a hundred thousand trajectories to open."""
    probe = "import launch.monitor.web.app, sys; print('launch.config' in sys.modules, 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_protocol_knows_no_docker() -> None:
    assert "aiodocker" not in loaded("protocol")
