"""GPUs and NCCL: there are as many as are asked for, the driver answers, and torch was built to use them.

Device files tell whether there is any, in no time.  nvidia-smi and torch are asked in processes of their own, which a
driver that hangs cannot keep.
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

_DEVICES = Path("/dev")
_GPUS = ("nvidia[0-9]*", "kfd", "dxg")
"""Device files of a GPU that torch calls ``cuda``: NVIDIA's, AMD's, WSL's."""
_SMI_S, _TORCH_S = 20.0, 90.0
_QUERY = ("--query-gpu=name,memory.total,memory.used,driver_version", "--format=csv,noheader,nounits")
_ASK_TORCH = """
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
_DRIVER = "look at `nvidia-smi` and `dmesg | grep -i nvrm`; a driver that hangs needs a restart of the machine"


@dataclass(frozen=True, slots=True)
class GpuInfo:
    name: str
    total_mb: int
    used_mb: int
    driver: str


@dataclass(frozen=True, slots=True)
class TorchFacts:
    build: str
    """CUDA or ROCm that torch was built with; empty for neither."""
    gpus: int
    """That it sees."""
    nccl: str


@dataclass(frozen=True, slots=True)
class GpuFacts:
    devices: bool
    """There are device files of one."""
    gpus: tuple[GpuInfo, ...] = ()
    smi_error: str = ""
    torch: TorchFacts | None = None
    torch_error: str = ""
    interfaces: tuple[str, ...] = ()
    configured_interfaces: tuple[tuple[str, str], ...] = ()
    """(variable, what it says) of those that name network interfaces."""


def has_gpu_device() -> bool:
    """Whether this machine has a GPU's device file."""
    return any(found for kind in _GPUS for found in _DEVICES.glob(kind))


def judge_gpu_device(*, there: bool, wants: HostRequirements) -> list[Finding]:
    """Whether what asks for a GPU can have one."""
    if not wants.gpu_keys or there:
        return []
    return [
        failed(
            CheckName.GPU,
            f"{' and '.join(f'{key} = cuda' for key in wants.gpu_keys)}, and this machine has no GPU "
            f"(no {_DEVICES}/nvidia*)",
            " ".join(f"--set {key}=cpu" for key in wants.gpu_keys) + wants.gpu_alternative,
        )
    ]


def look(wants: HostRequirements) -> GpuFacts:
    """Blocks for as long as torch needs to be imported, where there is a GPU."""
    del wants
    if not has_gpu_device():
        return GpuFacts(devices=False)
    gpus, smi_error = _smi()
    torch, torch_error = _torch()
    asked = ((name, os.environ[name]) for name in _INTERFACES if os.environ.get(name))
    interfaces = tuple(name for _, name in socket.if_nameindex())
    return GpuFacts(True, gpus, smi_error, torch, torch_error, interfaces, tuple(asked))


def _smi() -> tuple[tuple[GpuInfo, ...], str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return (), ""
    try:
        done = subprocess.run((program, *_QUERY), capture_output=True, text=True, timeout=_SMI_S, check=True)
    except subprocess.TimeoutExpired:
        return (), f"nvidia-smi gives no answer within {_SMI_S:g} s"
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stdout", "") or str(error)).strip().splitlines()
        return (), f"nvidia-smi fails: {said[0] if said else 'without a word'}"
    return parse_nvidia_smi(done.stdout), ""


def parse_nvidia_smi(text: str) -> tuple[GpuInfo, ...]:
    """What nvidia-smi prints, a GPU a line."""
    found: list[GpuInfo] = []
    for line in text.splitlines():
        name, total, used, driver = (part.strip() for part in line.rsplit(",", 3))
        with contextlib.suppress(ValueError):  # ``[N/A]``, of a GPU that shares the machine's memory
            found.append(GpuInfo(name, int(total), int(used), driver))
    return tuple(found)


def _torch() -> tuple[TorchFacts | None, str]:
    try:
        done = subprocess.run(
            (sys.executable, "-c", _ASK_TORCH), capture_output=True, text=True, timeout=_TORCH_S, check=True
        )
        said: Mapping[str, object] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return None, f"torch does not come to an answer within {_TORCH_S:g} s"
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError) as error:
        told = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        return None, f"torch cannot be asked: {told[-1] if told else 'it ends without a word'}"
    return TorchFacts(str(said["build"]), int(str(said["gpus"])), str(said["nccl"])), ""


def judge(facts: GpuFacts, wants: HostRequirements) -> list[Finding]:
    """GPU and NCCL."""
    if not facts.devices:
        return judge_gpu_device(there=False, wants=wants) or [
            ok(CheckName.GPU, "none, and nothing asks for one"),
            ok(CheckName.NCCL, "not needed without a GPU"),
        ]
    return [*_gpu(facts, wants), *_nccl(facts, wants)]


def _gpu(facts: GpuFacts, wants: HostRequirements) -> list[Finding]:
    if facts.smi_error:
        return [failed(CheckName.GPU, facts.smi_error, _DRIVER)]
    if facts.torch is None or not wants.gpu_keys:
        return [_unused(facts) if facts.torch else warning(CheckName.GPU, facts.torch_error, _DRIVER)]
    found: list[Finding] = []
    if not facts.torch.build:
        said = f"{' and '.join(wants.gpu_keys)} = cuda, and the torch that is installed is a build for CPUs"
        found.append(failed(CheckName.GPU, said, "install the CUDA builds of torch and sglang in .venv"))
    elif facts.torch.gpus < max(1, wants.gpus):
        said = f"the run asks for {max(1, wants.gpus)} GPUs, and torch sees {facts.torch.gpus}"
        fix = "lower learner.ranks, engine.count or engine.tp, or look at CUDA_VISIBLE_DEVICES and `nvidia-smi`"
        found.append(failed(CheckName.GPU, said, fix))
    if busy := [gpu for gpu in facts.gpus if gpu.used_mb > _BUSY_SHARE * gpu.total_mb]:
        used = ", ".join(f"{gpu.used_mb:,} of {gpu.total_mb:,} MB" for gpu in busy)
        said = f"{len(busy)} of {len(facts.gpus)} GPUs are in use already ({used})"
        found.append(warning(CheckName.GPU, said, "end what uses them (`nvidia-smi` lists it)"))
    return found or [_unused(facts)]


def _unused(facts: GpuFacts) -> Finding:
    gpus = [f"{gpu.name}, {gpu.total_mb:,} MB, driver {gpu.driver}" for gpu in facts.gpus]
    build = f"torch is built for {facts.torch.build}" if facts.torch and facts.torch.build else "torch is a CPU build"
    return ok(CheckName.GPU, "; ".join([*gpus, build]))


def _nccl(facts: GpuFacts, wants: HostRequirements) -> list[Finding]:
    found: list[Finding] = []
    for variable, said in facts.configured_interfaces:
        wanted = said.lstrip("=^").split(",")
        if not said.startswith("^") and not any(name.startswith(each) for each in wanted for name in facts.interfaces):
            here = ", ".join(facts.interfaces)
            lacking = f"{variable}={said} names no network interface of this machine ({here})"
            found.append(failed(CheckName.NCCL, lacking, f"unset {variable}, or name one of them"))
    if facts.torch is not None and facts.torch.gpus and not facts.torch.nccl:
        said, fix = "torch was built without NCCL", "install torch's build for CUDA from pytorch.org's index"
        found.append(failed(CheckName.NCCL, said, fix) if wants.gpus > 1 else warning(CheckName.NCCL, said, fix))
    version = facts.torch.nccl if facts.torch else ""
    return found or [ok(CheckName.NCCL, f"NCCL {version}" if version else "not needed: torch uses no GPU")]


def _look_device(wants: HostRequirements) -> bool:
    del wants
    return has_gpu_device()


GPU_DEVICE_CHECK = make_host_check(
    (CheckName.GPU,),
    _look_device,
    lambda there, wants: judge_gpu_device(there=there, wants=wants),
    deadline_s=5.0,
    timeout_fix=_DRIVER,
)
"""What a run asks before it starts."""
GPU_CHECK = make_host_check(
    (CheckName.GPU, CheckName.NCCL),
    look,
    judge,
    deadline_s=_SMI_S + _TORCH_S + 10.0,
    timeout_fix=_DRIVER,
    quick=False,
)
