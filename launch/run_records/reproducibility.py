"""The record that is needed to repeat a run, written to ``config.json`` before its first step."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import cast

from launch.config import RunConfig, SftConfig
from launch.run_records.config_changes import CHANGES_KEY, read_changes
from launch.run_records.run_directory import RunDirectory
from launch.run_records.stored_config import config_tables
from protocol.dependencies import installed_version
from protocol.events import JsonValue
from protocol.run_directory.layout import CONFIG_FILE, STARTS_FOLDER
from sandbox.docker.daemon import image_id
from sandbox.host_record import current_host, is_set_up

CHECKOUT_ROOT = Path(__file__).resolve().parents[2]
RECORDED_PACKAGES = ("torch", "sglang", "transformers", "megatron-core", "ray", "pyzmq", "aiodocker", "numpy")


def write_record(
    directory: RunDirectory, config: RunConfig | SftConfig, images: Mapping[str, str] | None = None
) -> Path:
    """Write the record of this start to its folder and as the run's ``config.json``."""
    record = make_record(directory, config, images or {})
    directory.write_json(f"{STARTS_FOLDER}/{directory.start_number}/{CONFIG_FILE}", record)
    return directory.write_json(CONFIG_FILE, record)


def make_record(
    directory: RunDirectory, config: RunConfig | SftConfig, images: Mapping[str, str]
) -> dict[str, JsonValue]:
    """Return the record; ``images`` maps image names to content ids."""
    commit = _git("rev-parse", "HEAD")
    return {
        "run_id": directory.run_id,
        "start_number": directory.start_number,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": [*sys.orig_argv],
        "config": cast("JsonValue", config_tables(config)),
        CHANGES_KEY: [cast("JsonValue", asdict(change)) for change in read_changes(directory.path)],
        "seeds": {"run": config.run.seed},
        "code": {
            "commit": commit,
            "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")) if commit else None,
            "constraints_sha256": _sha256(CHECKOUT_ROOT / "constraints.txt"),
        },
        "images": dict(images),
        "python": platform.python_version(),
        "packages": {name: installed_version(name) for name in RECORDED_PACKAGES},
        "hardware": describe_hardware(),
    }


def base_image_id(config: RunConfig) -> dict[str, str]:
    """Return the default image of tasks and its content id; empty if sandboxes run elsewhere."""
    if not config.sandbox.uses_worker_pools or not is_set_up():
        return {}
    host = current_host()
    name = config.sandbox.image or host.base_image
    return {name: image_id(host.docker_url, name)}


def describe_hardware() -> dict[str, JsonValue]:
    """Return a description of this machine."""
    return {
        "platform": platform.platform(),
        "processor": _first_value(Path("/proc/cpuinfo"), "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": [*_gpus()],
    }


def _gpus() -> list[str]:
    folders = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return [_first_value(folder, "Model") for folder in folders]


def _first_value(path: Path, key: str) -> str:
    """Return the first value of ``key`` in a file of ``key : value`` lines; empty if there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    values = (line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == key)
    return next(values, "")


def _git(*arguments: str) -> str:
    """Return git's output in the checkout of this code; empty outside a checkout."""
    try:
        done = subprocess.run(
            ["git", "-C", str(CHECKOUT_ROOT), *arguments], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
