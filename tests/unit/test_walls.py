"""The light rooms stay light: a reader on a laptop, ``--help`` and a wrong key never pay for torch, ray or sglang."""

from __future__ import annotations

import json
import subprocess
import sys

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
    "tests.support.fakes.fake_cluster",
    "tests.support.fakes.fake_evaluate",
]

PROBE = """
import importlib, json, pkgutil, sys
loaded = {}
for package in sys.argv[1:]:
    root = importlib.import_module(package)
    for found in pkgutil.walk_packages(getattr(root, "__path__", []), root.__name__ + "."):
        if not found.name.endswith(".__main__"):
            importlib.import_module(found.name)
    loaded[package] = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps(loaded))
"""


def loaded(*packages: str) -> dict[str, set[str]]:
    """Return what a clean process has loaded after importing all of each package and of those before it."""
    done = subprocess.run([sys.executable, "-c", PROBE, *packages], capture_output=True, text=True, check=True)
    return {package: set(modules) for package, modules in json.loads(done.stdout).items()}


def test_importing_light_packages_loads_no_heavy_modules() -> None:
    assert {package: modules & HEAVY for package, modules in loaded(*LIGHT).items() if modules & HEAVY} == {}


def test_commands_set_rays_loopback_variables_before_importing_ray() -> None:
    """Ray reads its environment once; told too late, a driver looks for its own nodes at the machine's outer address,
    for an hour."""
    commands = ("launch.cluster", "launch.sft.__main__", "launch.bench.__main__")
    assert [command for command, modules in loaded(*commands).items() if "ray" in modules] == []


def test_importing_settings_loads_no_docker_client() -> None:
    """Each command reads them, and the client of the Docker daemon takes a seventh of their time."""
    assert not {"aiodocker", "aiohttp"} & loaded("launch.config.run")["launch.config.run"]


def test_the_monitor_starts_without_the_configuration() -> None:
    """Its schemas take longer to import than a run of a hundred thousand trajectories to open."""
    probe = "import launch.monitor.web.app, sys; print('launch.config' in sys.modules, 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_protocol_does_not_import_docker() -> None:
    assert "aiodocker" not in loaded("protocol")["protocol"]
