"""If these fail, somebody starts a run on a machine that cannot hold one, or is kept from one that can, or is told that
something is wrong and not what to do."""

from __future__ import annotations

import errno
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from launch.config import load_recipe
from launch.doctor import clock, docker_engine, docker_exec, gpu, host_checks, limits, ports, storage, versions
from launch.doctor.__main__ import make_recipe_check
from launch.doctor.check_runner import HostCheck, make_host_check, run_checks
from launch.doctor.docker_engine import DockerEngineFacts, EngineAnswer
from launch.doctor.docker_exec import ExecFacts
from launch.doctor.finding import CheckName, Finding, FindingLevel, finding_from_error, ok, require_no_failure
from launch.doctor.gpu import GpuFacts, GpuInfo, TorchFacts
from launch.doctor.host_checks import HOST_CHECKS, require_host
from launch.doctor.limits import LimitFacts
from launch.doctor.ports import PortFacts
from launch.doctor.requirements import HostRequirements, host_requirements, node_host_requirements
from launch.doctor.storage import FolderFacts, ShmFacts
from launch.doctor.versions import VersionFacts
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_USER
from protocol.errors import UserError
from sandbox.pool.disk_bound import DiskBound
from sandbox.tasks.network_policy import NetworkPolicy
from tests.support.commands import call_command

REQUIREMENTS = HostRequirements(folder=Path("/runs"), reserve_mb=512, containers=16)
CUDA = replace(REQUIREMENTS, gpu_keys=("learner.device", "engine.device"), gpus=2)
HARNESS = replace(REQUIREMENTS, harness=True)
ELSEWHERE = replace(REQUIREMENTS, folder_key="cluster.scratch_dir")
LIMITS = {"memory": True, "processes": True, "processor time": True}
ENGINE = DockerEngineFacts(
    url="unix:///e.sock",
    answer=EngineAnswer.YES,
    base_image="base",
    has_base_image=True,
    toolchain=Path("/toolchain"),
    has_toolchain=True,
    version="20.10",
    api=(1, 41),
    disk_bound=DiskBound.WATCH,
    limits=LIMITS,
)
FOLDER = FolderFacts(Path("/runs"), 1 << 40, 1 << 30, 1 << 31, "ext4")
LIMITED = LimitFacts(files=1 << 20, tasks=1 << 40, locked_bytes=1 << 40, infiniband=True)
H200 = GpuInfo("NVIDIA H200", 143_771, 4, "570.1")
GPUS = GpuFacts(devices=True, gpus=(H200, H200), torch=TorchFacts("12.8", 2, "2.27.3"), interfaces=("lo", "eth0"))
VERSIONS = VersionFacts((6, 1), (3, 11, 7), {"torch": "2.13.0+cu128"}, {"torch": "2.13.0"})


def worst(findings: Sequence[Finding]) -> Finding:
    """Also: whatever is wrong has a way out, and nothing that is right has."""
    for each in findings:
        assert bool(each.fix) is (each.level is not FindingLevel.OK), each
    return max(findings, key=lambda each: [*FindingLevel].index(each.level))


def judged(what: object, requirements: HostRequirements = REQUIREMENTS) -> list[Finding]:
    match what:
        case DockerEngineFacts():
            return [*docker_engine.check_docker_engine(what, requirements), *docker_engine.check_engine_clock(what)]
        case ExecFacts():
            return [*docker_exec.check_exec(what, requirements)]
        case FolderFacts():
            return storage.check_folder(what, requirements)
        case ShmFacts():
            return storage.check_shm(what, requirements)
        case LimitFacts():
            return limits.check_limits(what, requirements)
        case PortFacts():
            return ports.check_ports(what, requirements)
        case clock.ClockFacts():
            return clock.check_clock(what, requirements)
        case VersionFacts():
            return versions.check_versions(what, requirements)
        case GpuFacts():
            return gpu.check_gpu(what, requirements)
    raise AssertionError(what)


@pytest.mark.parametrize(
    ("facts", "requirements"),
    [
        (ENGINE, REQUIREMENTS),
        (DockerEngineFacts(), replace(REQUIREMENTS, docker=False)),
        (ENGINE, HARNESS),
        *((ENGINE, replace(REQUIREMENTS, network=policy)) for policy in NetworkPolicy),
        (replace(ENGINE, has_bridge=True), REQUIREMENTS),
        (replace(ENGINE, has_bridge=True), replace(REQUIREMENTS, network=NetworkPolicy.PROXY)),
        (replace(ENGINE, root=False), REQUIREMENTS),
        (
            replace(ENGINE, subnets={"longshore-1": "10.213.4.0/28"}, routes=("10.213.4.0/28", "10.0.0.0/24")),
            REQUIREMENTS,
        ),
        (FOLDER, REQUIREMENTS),
        (replace(FOLDER, inodes=0, free_inodes=0, filesystem="btrfs"), REQUIREMENTS),
        (replace(FOLDER, filesystem="nfs4"), replace(REQUIREMENTS, buffer=False)),
        (ShmFacts(there=True, total_bytes=1 << 30, free_bytes=1 << 30), REQUIREMENTS),
        (LIMITED, CUDA),
        (PortFacts((), 28_000), REQUIREMENTS),
        (clock.ClockFacts(1e9, 1e9, synchronised=False), REQUIREMENTS),
        (clock.ClockFacts(1e9, 1e9, synchronised=True), replace(REQUIREMENTS, machines=8)),
        (clock.ClockFacts(1e9, 1e9, synchronised=None), replace(REQUIREMENTS, machines=8)),
        (VERSIONS, REQUIREMENTS),
        (GpuFacts(devices=False), REQUIREMENTS),
        (GPUS, CUDA),
        (replace(GPUS, configured_interfaces=(("NCCL_SOCKET_IFNAME", "eth"), ("GLOO_SOCKET_IFNAME", "^docker"))), CUDA),
    ],
)
def test_a_capable_machine_passes_every_check(facts: object, requirements: HostRequirements) -> None:
    assert worst(judged(facts, requirements)).level is FindingLevel.OK


W, F = FindingLevel.WARNING, FindingLevel.FAILED


@pytest.mark.parametrize(
    ("facts", "requirements", "level", "check", "message", "fix"),
    [
        (
            DockerEngineFacts(configured_url="tcp://x:1", configured_answer=EngineAnswer.NONE),
            REQUIREMENTS,
            F,
            "docker",
            "no Docker",
            "unset DOCKER_H",
        ),
        (
            DockerEngineFacts(setup_error=UserError("not set up: run `up`")),
            REQUIREMENTS,
            F,
            "docker",
            "not set up",
            "run `up`",
        ),
        (replace(ENGINE, disk_bound=DiskBound.FILE_SIZE), REQUIREMENTS, W, "disk", "NOT ENFORCED", "pquota"),
        (replace(ENGINE, disk_bound=None), REQUIREMENTS, W, "disk", "made no container", "the engine's log"),
        *(
            (
                replace(ENGINE, has_bridge=True),
                replace(REQUIREMENTS, network=policy),
                *(W, "network", f"sandbox.network = {policy} gives to agents, is not filtered", "chain INPUT for its"),
            )
            for policy in (NetworkPolicy.FULL, NetworkPolicy.TASK)
        ),
        (ExecFacts("unix:///e.sock", leaves_container=True), REQUIREMENTS, F, "docker", "in the root of", "pivot_root"),
        (
            replace(ENGINE, components=({"Name": "runc", "Version": "1.1.11"},)),
            REQUIREMENTS,
            W,
            "docker",
            "CVE-2024-21626",
            "update it",
        ),
        (
            replace(ENGINE, answer=EngineAnswer.NONE),
            REQUIREMENTS,
            F,
            "docker",
            "no Docker engine answers",
            "make setup",
        ),
        (
            replace(ENGINE, answer=EngineAnswer.SILENT),
            REQUIREMENTS,
            F,
            "docker",
            "does not reply",
            "systemctl restart docker",
        ),
        (
            replace(ENGINE, answer=EngineAnswer.FORBIDDEN),
            REQUIREMENTS,
            F,
            "docker",
            "may not use",
            "usermod -aG docker",
        ),
        (replace(ENGINE, has_base_image=False), REQUIREMENTS, F, "docker", "base image", "make setup"),
        (
            replace(ENGINE, has_toolchain=False),
            REQUIREMENTS,
            F,
            "docker",
            "the toolchain /toolchain is missing",
            "make setup",
        ),
        (
            replace(ENGINE, has_wanted_image=False),
            replace(REQUIREMENTS, image="i"),
            F,
            "docker",
            "'i' is not",
            "images pull i",
        ),
        (
            replace(ENGINE, has_wanted_harness=False),
            replace(HARNESS, published_harness="codex"),
            F,
            "docker",
            "'codex' is not installed",
            "longshore harness install codex",
        ),
        (
            replace(ENGINE, has_wanted_browser=False),
            replace(REQUIREMENTS, browser=True),
            F,
            "docker",
            "needs Chromium",
            "longshore browser install",
        ),
        (replace(ENGINE, root=False), HARNESS, F, "docker", "agent.harness", "as root, or leave the key out"),
        (replace(ENGINE, url="tcp://box:2375"), HARNESS, F, "docker", "tcp://box:2375", "as root, or leave the key"),
        (replace(ENGINE, api=(1, 40)), REQUIREMENTS, W, "docker", "API 1.40", "Docker 20.10"),
        (
            replace(ENGINE, limits=LIMITS | {"memory": False}),
            REQUIREMENTS,
            F,
            "cgroup",
            "memory",
            "cgroup_enable=memory",
        ),
        (replace(ENGINE, limits=LIMITS | {"processes": False}), REQUIREMENTS, F, "cgroup", "processes", "Delegate"),
        (
            replace(ENGINE, limits=LIMITS | {"processor time": False}),
            REQUIREMENTS,
            W,
            "cgroup",
            "processor",
            "Delegate",
        ),
        (replace(ENGINE, ahead_s=-61.0), REQUIREMENTS, W, "clock", "-61 s off", "timedatectl"),
        (
            replace(ENGINE, subnets={"vpn": "10.0.0.0/8"}),
            REQUIREMENTS,
            W,
            "address pools",
            "10.0.0.0/8 overlaps",
            "ip route",
        ),
        (
            replace(ENGINE, routes=("10.213.8.0/24",)),
            REQUIREMENTS,
            W,
            "address pools",
            "10.213.8.0/24 overlaps",
            "ip route",
        ),
        (
            replace(ENGINE, pools=2, subnets={"a": "172.17.0.0/16", "b": "172.18.0.0/16"}),
            *(REQUIREMENTS, W, "address pools", "2 networks fill", "network prune"),
        ),
        (replace(FOLDER, free_bytes=100 << 20), REQUIREMENTS, F, "disk", "100.0 MiB free", "--set run.dir=FOLDER"),
        (replace(FOLDER, free_bytes=1), ELSEWHERE, F, "disk", "1 B free", "--set cluster.scratch_dir=FOLDER"),
        (
            replace(FOLDER, free_inodes=9),
            ELSEWHERE,
            F,
            "inodes",
            "only 9 more files",
            "--set cluster.scratch_dir=FOLDER",
        ),
        (replace(FOLDER, write_error=errno.EACCES), REQUIREMENTS, F, "disk", "this user cannot", "its owner (`ls -ld"),
        (
            replace(FOLDER, write_error=errno.EROFS),
            REQUIREMENTS,
            F,
            "disk",
            "read-only file system",
            "`findmnt -T /runs`",
        ),
        (replace(FOLDER, write_error=errno.ENOTDIR), REQUIREMENTS, F, "disk", "/runs is not a folder", "rename it"),
        (replace(FOLDER, write_error=errno.EDQUOT), REQUIREMENTS, F, "disk", "quota exceeded", "`df -h /runs`"),
        (replace(FOLDER, free_inodes=99), REQUIREMENTS, F, "inodes", "only 99 more files", "du --inodes"),
        (replace(FOLDER, free_inodes=99_999), REQUIREMENTS, W, "inodes", "99,999 more files", "du --inodes"),
        (
            replace(FOLDER, filesystem="nfs4"),
            REQUIREMENTS,
            F,
            "file system",
            "network file system (nfs4)",
            "run.dir=/var/tmp/runs",
        ),
        (
            replace(FOLDER, filesystem="tmpfs"),
            REQUIREMENTS,
            W,
            "file system",
            "in memory (tmpfs)",
            "run.dir=/var/tmp/runs",
        ),
        (ShmFacts(there=False), REQUIREMENTS, F, "/dev/shm", "missing", "mount -t tmpfs"),
        (
            ShmFacts(there=True, total_bytes=64 << 20, free_bytes=64 << 20),
            REQUIREMENTS,
            W,
            "/dev/shm",
            "64.0 MiB",
            "--shm-size=1g",
        ),
        (ShmFacts(there=True, total_bytes=1 << 29, free_bytes=1 << 29), CUDA, W, "/dev/shm", "NCCL", "--shm-size=3g"),
        (replace(LIMITED, files=1024), REQUIREMENTS, F, "ulimits", "1,024 files", "nofile"),
        (replace(LIMITED, tasks=500), REQUIREMENTS, W, "ulimits", "500 processes", "pids-limit"),
        (replace(LIMITED, locked_bytes=65536), CUDA, W, "ulimits", "64 KiB", "memlock"),
        (
            PortFacts((UserError("port 1 is in use: use another"),), 28_000),
            REQUIREMENTS,
            F,
            "ports",
            "in use",
            "use another",
        ),
        (PortFacts((), 100), REQUIREMENTS, W, "ports", "only 100 ephemeral ports", "sysctl"),
        (clock.ClockFacts(1e9, 2e9, synchronised=True), REQUIREMENTS, F, "clock", "days behind", "timedatectl"),
        (
            clock.ClockFacts(1e9, 1e9, synchronised=False),
            replace(REQUIREMENTS, machines=8),
            W,
            "clock",
            "8 machines",
            "chronyc",
        ),
        (replace(VERSIONS, python=(3, 10, 1)), REQUIREMENTS, F, "versions", "Python 3.10.1", "make setup PYTHON"),
        (replace(VERSIONS, kernel=(3, 10)), REQUIREMENTS, W, "versions", "Linux 3.10", "kernel"),
        (replace(VERSIONS, installed={"torch": ""}), REQUIREMENTS, F, "versions", "torch not installed", "make setup"),
        (
            replace(VERSIONS, installed={"torch": "2.12.0"}),
            REQUIREMENTS,
            W,
            "versions",
            "torch 2.12.0 (tested: 2.13.0)",
            "setup",
        ),
        (GpuFacts(devices=False), CUDA, F, "gpu", "no GPU", "--set engine.device=cpu"),
        (replace(GPUS, smi_error="nvidia-smi gives no answer"), REQUIREMENTS, F, "gpu", "no answer", "dmesg"),
        (
            replace(GPUS, torch=None, torch_error="torch cannot be asked"),
            REQUIREMENTS,
            W,
            "gpu",
            "torch cannot",
            "dmesg",
        ),
        (replace(GPUS, torch=TorchFacts("", 0, "")), CUDA, F, "gpu", "CPU build", "CUDA builds"),
        (replace(GPUS, torch=TorchFacts("12.8", 1, "2.27")), CUDA, F, "gpu", "needs 2 GPUs", "CUDA_VISIBLE_DEVICES"),
        (replace(GPUS, gpus=(H200, replace(H200, used_mb=90_000))), CUDA, W, "gpu", "1 of 2 GPUs", "nvidia-smi"),
        (replace(GPUS, torch=TorchFacts("12.8", 2, "")), CUDA, F, "nccl", "without NCCL", "build for CUDA"),
        (
            replace(GPUS, configured_interfaces=(("NCCL_SOCKET_IFNAME", "ib0"),)),
            CUDA,
            F,
            "nccl",
            "=ib0 names no",
            "unset",
        ),
    ],
)
def test_a_problem_is_reported_with_its_fix(
    facts: object, requirements: HostRequirements, level: FindingLevel, check: str, message: str, fix: str
) -> None:
    found = worst(judged(facts, requirements))
    assert (found.level, found.check) == (level, check)
    assert message in found.message
    assert fix in found.fix


def test_a_hanging_check_is_one_finding_and_delays_no_other_check() -> None:
    """Hang as a call to a lost file server or driver does: nothing in the process can end it."""
    for_ever = threading.Event()

    def hangs(requirements: HostRequirements) -> bool:
        del requirements
        return for_ever.wait()

    def breaks(requirements: HostRequirements) -> bool:
        raise OSError("gone")

    def fine(seen: bool, requirements: HostRequirements) -> list[Finding]:
        return [Finding(CheckName.CLOCK, FindingLevel.OK, str(seen))]

    checks = [
        make_host_check((CheckName.DISK,), hangs, fine, deadline_s=0.05, timeout_fix="mend the disk"),
        make_host_check((CheckName.CLOCK,), lambda requirements: True, fine, deadline_s=60.0, timeout_fix="-"),
        make_host_check((CheckName.SHM,), breaks, fine, deadline_s=60.0, timeout_fix="mend it"),
    ]
    hung, good, broken = run_checks(checks, REQUIREMENTS)
    assert (hung.check, hung.level, hung.fix) == (CheckName.DISK, FindingLevel.FAILED, "mend the disk")
    assert "no answer within 0.05 s" in hung.message
    assert good.level is FindingLevel.OK
    assert (broken.level, broken.fix) == (FindingLevel.FAILED, "mend it")
    assert "OSError: gone" in broken.message


def test_a_check_that_answers_after_its_deadline_gives_only_one_finding() -> None:
    """Its late answer is no second finding."""
    begun = threading.Event()

    def slow(requirements: HostRequirements) -> bool:
        return begun.wait()

    def wakes(requirements: HostRequirements) -> bool:
        begun.set()
        return True

    def says(seen: bool, requirements: HostRequirements) -> list[Finding]:
        return [Finding(CheckName.CLOCK, FindingLevel.OK, str(seen))]

    late = HostCheck(
        (CheckName.DISK,), lambda requirements: says(slow(requirements), requirements), 0.0, "x", quick=True
    )
    early = HostCheck(
        (CheckName.CLOCK,), lambda requirements: says(wakes(requirements), requirements), 60.0, "x", quick=True
    )
    assert len(run_checks([late, early], REQUIREMENTS)) == 2


def test_requirements_and_findings_can_be_pickled() -> None:
    """Each node of a cluster is asked by the same function."""
    requirements = host_requirements(load_recipe("demo", ["cluster.nodes=4"]))
    assert pickle.loads(pickle.dumps(requirements)) == requirements  # noqa: S301  our own
    finding = finding_from_error(CheckName.PORTS, UserError("port 1 is in use: use another"))
    assert pickle.loads(pickle.dumps(finding)) == finding  # noqa: S301  our own


def test_a_missing_model_or_data_folder_is_reported_with_the_option_that_sets_it(tmp_path: Path) -> None:
    recipe = load_recipe("seta_qwen3_8b", [f"model.path='{tmp_path}'", f"data.path='{tmp_path}/tasks'"])
    found = [str(each) for each in make_recipe_check(recipe).find(host_requirements(recipe))]
    assert ["--model" in line for line in found if "config.json" in line] == [True], "one finding about the model"
    assert any("tasks is missing" in line and "--set data.path=" in line for line in found), found


def test_the_doctor_takes_the_same_model_option_as_a_run() -> None:
    done = doctor("demo", "--model", "/nowhere", "--json")
    found = json.loads(done.stdout)["findings"]
    assert any("/nowhere" in each["message"] for each in found), found


def test_the_requirements_of_a_run_follow_its_configuration() -> None:
    alone = host_requirements(load_recipe("demo", ["cluster.nodes=4", "learner.device=cuda", "engine.device=cuda"]))
    assert (alone.nodes, alone.machines, alone.gpus) == (4, 1, 2)
    assert alone.gpu_keys == ("learner.device", "engine.device")
    joined = host_requirements(
        load_recipe("demo", ["cluster.nodes=4", "cluster.address='10.0.0.1:1'", "engine.device=cuda"])
    )
    assert (joined.nodes, joined.machines, joined.gpu_keys) == (1, 4, ())
    assert (joined.docker, joined.containers) == (False, 0), "of each node it is asked apart"
    elsewhere = host_requirements(load_recipe("demo", ["sandbox.provider=pool"]))
    assert (elsewhere.docker, elsewhere.containers) == (False, 0)
    beside = host_requirements(
        load_recipe("demo", ["evaluation.every_steps=8", "learner.device=cuda", "engine.device=cuda"])
    )
    assert (beside.gpus, beside.containers - host_requirements(load_recipe("demo")).containers) == (3, 4)


def test_every_node_of_a_cluster_is_checked_for_any_role_that_it_may_get() -> None:
    joins = ["cluster.nodes=4", "cluster.address=10.0.0.1:1"]
    node = node_host_requirements(load_recipe("demo", [*joins, "engine.device=cuda", "learner.device=cuda"]))
    assert (node.folder, node.folder_key, node.ports) == (Path("/tmp/longshore"), "cluster.scratch_dir", ())
    assert (node.docker, node.buffer, node.nodes, node.machines) == (True, False, 1, 4)
    assert node.gpu_keys == ("engine.device",), "the learner is on the head"
    assert not node_host_requirements(load_recipe("demo", [*joins, "sandbox.provider=pool"])).docker


@pytest.mark.parametrize("key", ["learner.device", "engine.device"])
def test_cuda_without_a_gpu_is_refused_by_its_key(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a run starts too, from the device files alone."""
    monkeypatch.setattr(gpu, "DEVICES", tmp_path)
    (tmp_path / "nvidiactl").touch()
    requirements = replace(REQUIREMENTS, folder=tmp_path, docker=False, reserve_mb=0)
    require_host(requirements)
    wanted = replace(requirements, gpu_keys=(key,))
    with pytest.raises(UserError, match=rf"^{key} = cuda, and this machine has no GPU.*--set {key}=cpu"):
        require_host(wanted)
    (tmp_path / "nvidia0").touch()
    require_host(wanted)


def test_a_full_disk_is_refused_with_the_way_out(tmp_path: Path) -> None:
    requirements = replace(REQUIREMENTS, folder=tmp_path / "runs", docker=False)
    require_host(replace(requirements, reserve_mb=1))
    with pytest.raises(UserError, match=r"--set run\.dir=FOLDER"):
        require_host(replace(requirements, reserve_mb=1 << 40))


def test_a_port_in_use_is_refused_by_its_key(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        requirements = replace(
            REQUIREMENTS, folder=tmp_path, docker=False, reserve_mb=0, ports=(("buffer.port", port),)
        )
        with pytest.raises(UserError, match=rf"port {port} is in use .*--set buffer\.port=PORT"):
            require_host(requirements)


def test_a_runs_start_tells_the_warnings_of_its_machine(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    late = Finding(CheckName.CLOCK, FindingLevel.WARNING, "late", "mend it")

    def find(requirements: HostRequirements) -> list[Finding]:
        assert requirements
        return [ok(CheckName.SHM, "fine"), late]

    check = HostCheck((CheckName.CLOCK,), find, 60.0, "x", quick=True)
    monkeypatch.setattr(host_checks, "HOST_CHECKS", (check,))
    assert require_host(REQUIREMENTS) == [late]

    def stop(*_: object, **__: object) -> None:
        raise UserError("far enough")

    monkeypatch.setattr("launch.cluster.RunDirectory.create", stop)
    done = call_command(capfd, "launch.cluster", "demo")
    assert done.stderr.splitlines()[-2:] == ["warning: clock: late: mend it", "error: far enough"]


def test_a_warning_does_not_stop_a_run() -> None:
    require_no_failure([Finding(CheckName.CLOCK, FindingLevel.WARNING, "late", "mend it")])


def test_the_output_of_nvidia_smi_is_parsed() -> None:
    text = "NVIDIA H200, 143771, 4, 570.1\nNVIDIA GB10, [N/A], [N/A], 580.1\n"
    assert gpu.parse_nvidia_smi(text) == (H200,)


def test_every_host_check_name_is_on_the_list_of_checks() -> None:
    listed = {name for check in HOST_CHECKS for name in check.names}
    assert listed == set(CheckName) - {CheckName.RECIPE, CheckName.ANSWER}


def doctor(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launch.doctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=os.environ | env,
    )


@pytest.mark.slow
def test_an_engine_that_hangs_is_a_finding_of_the_command(tmp_path: Path) -> None:
    """It takes the connection and never says a word, as a dockerd does whose storage hangs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / "d.sock"))
        dead.listen()
        done = doctor("--json", "--set", f"run.dir='{tmp_path}'", DOCKER_HOST=f"unix://{tmp_path}/d.sock")
    report = json.loads(done.stdout)
    assert done.returncode == EXIT_FAILED, done.stderr
    assert (report["ok"], report["failed"]) == (False, 1)
    (wrong,) = (each for each in report["findings"] if each["level"] == "failed")
    assert wrong["check"] == "docker"
    assert "does not reply" in wrong["message"]
    assert "restart" in wrong["fix"]
    assert f"→ {wrong['fix']}" in done.stderr


def test_an_unknown_recipe_is_refused_with_a_suggestion() -> None:
    done = doctor("--json", "dmo")
    assert done.returncode == json.loads(done.stdout)["exit_code"] == EXIT_USER
    assert "did you mean 'demo'" in done.stderr


@pytest.mark.parametrize("number", [errno.EROFS, errno.EPERM, errno.EACCES])
def test_a_folder_says_why_nothing_can_be_created_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A read-only file system is no matter of ownership, and root owns everything."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    def deny(*_: object) -> bool:
        return False

    assert storage.read_folder_facts(tmp_path / "runs").write_error == 0
    monkeypatch.setattr(os, "access", deny)
    monkeypatch.setattr(os, "mkdir", fail)
    assert storage.read_folder_facts(tmp_path / "runs").write_error == number


def test_a_file_in_place_of_a_folder_is_told_before_a_run_starts(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    assert storage.read_folder_facts(tmp_path / "runs" / "mine").write_error == errno.ENOTDIR
