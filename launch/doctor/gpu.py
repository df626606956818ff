"""Checks GPUs and NCCL: there are enough, the driver answers, and torch can use them.

Device files show at once whether there is any GPU.  nvidia-smi and torch run in subprocesses, which can be abandoned if
the driver hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launch.doctor.check_runner import make_host_check
from launch.doctor.finding import CheckName, Finding, failed, ok, warning
from launch.doctor.requirements import HostRequirements
from protocol.cli.formatting import format_bytes

DEVICES = Path("/dev")
_GPUS = ("nvidia[0-9]*", "kfd", "dxg")
"""Device files of GPUs that torch calls ``cuda``: NVIDIA's, AMD's, WSL's."""
_SMI_S, _TORCH_S = 20.0, 90.0
_QUERY = ("--query-gpu=name,memory.total,memory.used,driver_version", "--format=csv,noheader,nounits")
_TORCH_QUERY = """
import json, torch
cuda = torch.cuda.is_available()
print(json.dumps({
    "build": torch.version.cuda or torch.version.hip or "",
    "gpus": torch.cuda.device_count() if cuda else 0,
    "nccl": ".".join(map(str, torch.cuda.nccl.version())) if cuda and torch.distributed.is_nccl_available() else "",
}))
"""
_BUSY_SHARE = 0.1
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_DRIVER = "check `nvidia-smi` and `dmesg | grep -i nvrm`; a hanging driver needs a reboot"


@dataclass(frozen=True, slots=True)
class GpuInfo:
    name: str
    total_mb: int
    used_mb: int
    driver: str


@dataclass(frozen=True, slots=True)
class TorchFacts:
    build: str
    """Version of CUDA or ROCm that torch was built with; empty for neither."""
    gpus: int
    """Number of GPUs that torch sees."""
    nccl: str


@dataclass(frozen=True, slots=True)
class GpuFacts:
    devices: bool
    """Whether there is a device file of a GPU."""
    gpus: tuple[GpuInfo, ...] = ()
    smi_error: str = ""
    torch: TorchFacts | None = None
    torch_error: str = ""
    interfaces: tuple[str, ...] = ()
    configured_interfaces: tuple[tuple[str, str], ...] = ()
    """(variable, value) of environment variables that name network interfaces."""


def has_gpu_device() -> bool:
    """Return whether this machine has a device file of a GPU."""
    return any(found for kind in _GPUS for found in DEVICES.glob(kind))


def check_gpu_device(*, has_device: bool, requirements: HostRequirements) -> list[Finding]:
    """Return a finding if a GPU is needed and there is none."""
    if not requirements.gpu_keys or has_device:
        return []
    return [
        failed(
            CheckName.GPU,
            f"{' and '.join(f'{key} = cuda' for key in requirements.gpu_keys)}, and this machine has no GPU "
            f"(no {DEVICES}/nvidia*)",
            " ".join(f"--set {key}=cpu" for key in requirements.gpu_keys) + requirements.gpu_alternative,
        )
    ]


def read_gpu_facts(requirements: HostRequirements) -> GpuFacts:
    """Query the driver and torch if there is a GPU; blocks until torch is imported."""
    del requirements
    if not has_gpu_device():
        return GpuFacts(devices=False)
    gpus, smi_error = _smi()
    torch, torch_error = _torch()
    configured = ((name, os.environ[name]) for name in _INTERFACES if os.environ.get(name))
    interfaces = tuple(name for _, name in socket.if_nameindex())
    return GpuFacts(True, gpus, smi_error, torch, torch_error, interfaces, tuple(configured))


def _smi() -> tuple[tuple[GpuInfo, ...], str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return (), ""
    try:
        done = subprocess.run((program, *_QUERY), capture_output=True, text=True, timeout=_SMI_S, check=True)
    except subprocess.TimeoutExpired:
        return (), f"nvidia-smi does not answer within {_SMI_S:g} s"
    except (OSError, subprocess.CalledProcessError) as error:
        lines = (getattr(error, "stdout", "") or str(error)).strip().splitlines()
        return (), f"nvidia-smi fails: {lines[0] if lines else 'no output'}"
    return parse_nvidia_smi(done.stdout), ""


def parse_nvidia_smi(text: str) -> tuple[GpuInfo, ...]:
    """Parse the output of nvidia-smi, one GPU per line."""
    found: list[GpuInfo] = []
    for line in text.splitlines():
        name, total, used, driver = (part.strip() for part in line.rsplit(",", 3))
        with contextlib.suppress(ValueError):  # ``[N/A]`` for a GPU that shares the machine's memory
            found.append(GpuInfo(name, int(total), int(used), driver))
    return tuple(found)


def _torch() -> tuple[TorchFacts | None, str]:
    try:
        done = subprocess.run(
            (sys.executable, "-c", _TORCH_QUERY), capture_output=True, text=True, timeout=_TORCH_S, check=True
        )
        facts: Mapping[str, object] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return None, f"torch does not answer within {_TORCH_S:g} s"
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError) as error:
        lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        return None, f"torch does not work: {lines[-1] if lines else 'no output'}"
    return TorchFacts(str(facts["build"]), int(str(facts["gpus"])), str(facts["nccl"])), ""


def check_gpu(facts: GpuFacts, requirements: HostRequirements) -> list[Finding]:
    """Return the findings on GPUs and NCCL."""
    if not facts.devices:
        return check_gpu_device(has_device=False, requirements=requirements) or [
            ok(CheckName.GPU, "none, and none is needed"),
            ok(CheckName.NCCL, "not needed without a GPU"),
        ]
    return [*_gpu(facts, requirements), *_nccl(facts, requirements)]


def _gpu(facts: GpuFacts, requirements: HostRequirements) -> list[Finding]:
    if facts.smi_error:
        return [failed(CheckName.GPU, facts.smi_error, _DRIVER)]
    if facts.torch is None or not requirements.gpu_keys:
        return [_unused(facts) if facts.torch else warning(CheckName.GPU, facts.torch_error, _DRIVER)]
    found: list[Finding] = []
    if not facts.torch.build:
        message = f"{' and '.join(requirements.gpu_keys)} = cuda, and the installed torch is a CPU build"
        found.append(failed(CheckName.GPU, message, "install the CUDA builds of torch and sglang in .venv"))
    elif facts.torch.gpus < max(1, requirements.gpus):
        message = f"the run needs {max(1, requirements.gpus)} GPUs, and torch sees {facts.torch.gpus}"
        fix = "lower learner.ranks, engine.count or engine.tp, or check CUDA_VISIBLE_DEVICES and `nvidia-smi`"
        found.append(failed(CheckName.GPU, message, fix))
    if busy := [gpu for gpu in facts.gpus if gpu.used_mb > _BUSY_SHARE * gpu.total_mb]:
        used = ", ".join(f"{format_bytes(gpu.used_mb << 20)} of {format_bytes(gpu.total_mb << 20)}" for gpu in busy)
        message = f"{len(busy)} of {len(facts.gpus)} GPUs are already in use ({used})"
        found.append(warning(CheckName.GPU, message, "stop the processes that use them (`nvidia-smi` lists them)"))
    return found or [_unused(facts)]


def _unused(facts: GpuFacts) -> Finding:
    gpus = [f"{gpu.name}, {format_bytes(gpu.total_mb << 20)}, driver {gpu.driver}" for gpu in facts.gpus]
    build = f"torch is built for {facts.torch.build}" if facts.torch and facts.torch.build else "torch is a CPU build"
    return ok(CheckName.GPU, "; ".join([*gpus, build]))


def _nccl(facts: GpuFacts, requirements: HostRequirements) -> list[Finding]:
    found: list[Finding] = []
    for variable, value in facts.configured_interfaces:
        wanted = value.lstrip("=^").split(",")
        if not value.startswith("^") and not any(name.startswith(each) for each in wanted for name in facts.interfaces):
            here = ", ".join(facts.interfaces)
            message = f"{variable}={value} names no network interface of this machine ({here})"
            found.append(failed(CheckName.NCCL, message, f"unset {variable}, or name one of them"))
    if facts.torch is not None and facts.torch.gpus and not facts.torch.nccl:
        message, fix = "torch was built without NCCL", "install torch's build for CUDA from pytorch.org's index"
        found.append(
            failed(CheckName.NCCL, message, fix) if requirements.gpus > 1 else warning(CheckName.NCCL, message, fix)
        )
    version = facts.torch.nccl if facts.torch else ""
    return found or [ok(CheckName.NCCL, f"NCCL {version}" if version else "not needed: torch uses no GPU")]


def _read_gpu_device(requirements: HostRequirements) -> bool:
    del requirements
    return has_gpu_device()


GPU_DEVICE_CHECK = make_host_check(
    (CheckName.GPU,),
    _read_gpu_device,
    lambda has_device, requirements: check_gpu_device(has_device=has_device, requirements=requirements),
    deadline_s=5.0,
    timeout_fix=_DRIVER,
)
"""Quick check before a run starts."""
GPU_CHECK = make_host_check(
    (CheckName.GPU, CheckName.NCCL),
    read_gpu_facts,
    check_gpu,
    deadline_s=_SMI_S + _TORCH_S + 10.0,
    timeout_fix=_DRIVER,
    quick=False,
)
