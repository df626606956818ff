"""If these fail, what somebody hands to Slurm or Kubernetes is refused there, or starts another run than they asked."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from launch.config import load_recipe
from launch.hosts.cluster_nodes import ROLES_LABEL
from launch.hosts.ray_environment import CLUSTER_RAY_ENVIRONMENT
from launch.run.arguments import parse_cluster_arguments
from launch.templates import __main__ as command
from launch.templates.entrypoint import make_cluster_arguments
from launch.templates.job import ClusterJob, make_job
from launch.templates.slurm import SlurmJob, render_slurm
from protocol.errors import UserError
from tests.support.runs.kuberay import RAY_JOB

RUN = ("demo", "--steps", "3", "--set", "agent.harness=python3 /opt/my agent.py $HOME 'x'")
SLURM = ("slurm", "--nodes", "8", "--gpus", "8", "--partition", "a100,h100", "--venv", "/opt/my env")
KUBERNETES = (
    *("kubernetes", "--image", "registry/longshore:1"),
    *("--engine-nodes", "2", "--agent-nodes", "3", "--gpus", "8"),
)


def rendered(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    command.COMMAND.call(words)
    return capsys.readouterr().out


# -- Slurm -------------------------------------------------------------------------------------------------------------


def test_a_batch_script_is_valid_bash(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(rendered(capsys, *SLURM, "--", *RUN))
    subprocess.run(["bash", "-n", script], check=True)
    if (shellcheck := shutil.which("shellcheck")) is not None:
        subprocess.run([shellcheck, "--exclude=SC1091", script], check=True)


def test_slurm_directives_request_the_given_resources(capsys: pytest.CaptureFixture[str]) -> None:
    """Its directives end with the first line that is no comment."""
    script = rendered(capsys, *SLURM, "--", *RUN)
    directives = script.partition("\nset -")[0].splitlines()
    for wanted in ("nodes=8", "gpus-per-node=8", "partition=a100,h100", "signal=B:TERM@180", "no-kill"):
        assert f"#SBATCH --{wanted}" in directives
    assert "account" not in script


FAKES = {
    "ray": '[ "$1" = start ] || until [ -s "$LOG.ray" ]; do sleep 0.01; done; '
    'echo "$@" >> "$LOG.ray"; case "$1" in start) exec sleep 600;; esac',
    "srun": 'echo "$@" >> "$LOG.srun"; exec sleep 600',
    "hostname": "echo 10.0.0.7 172.17.0.1",
    "python": 'if [ "$1" = -c ]; then exec PYTHON "$@"; fi; until [ -s "$LOG.srun" ]; do sleep 0.01; done; '
    'printf "%s\\n" "$RAY_ADDRESS" "$RAY_AUTH_MODE" "$@" > "$LOG.driver"',
}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Programs of a job's first node that note what they are asked for, in a virtual environment with a space.  Each
    waits for the one before it, as what it asks of Ray would."""
    programs = tmp_path / "my env" / "bin"
    programs.mkdir(parents=True)
    (programs / "activate").write_text(f"export PATH={shlex.quote(str(programs))}:$PATH\n")
    for name, body in FAKES.items():
        (programs / name).write_text(f"#!/bin/bash\n{body.replace('PYTHON', shlex.quote(sys.executable))}\n")
        (programs / name).chmod(0o755)
    return tmp_path


def test_a_batch_script_starts_head_nodes_and_driver_with_the_given_words(machine: Path) -> None:
    job = SlurmJob(
        job=make_job("longshore", RUN),
        nodes=2,
        cpus=4,
        gpus=0,
        time="1:00:00",
        partition="",
        account="",
        venv=str(machine / "my env"),
        runs="/my runs",
    )
    slurm = {"SLURM_JOB_ID": "17", "SLURM_NNODES": "2", "SLURMD_NODENAME": "first"}
    environment = {"PATH": "/usr/bin:/bin", "LOG": str(machine / "said"), **slurm}
    done = subprocess.run(
        ["bash", "-c", render_slurm(job)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    address, mode, *words = (machine / "said.driver").read_text().splitlines()
    assert (address, mode) == ("10.0.0.7:20017", "token")
    assert words == ["-m", "launch.templates.entrypoint", "/my runs", "longshore-17", "2", "--", *RUN]
    started, *options = (machine / "said.ray").read_text().splitlines()
    assert "start --head --block --node-ip-address=10.0.0.7 --port=20017" in started
    assert options == ["health-check --address 10.0.0.7:20017"]
    asked_of_others = (machine / "said.srun").read_text()
    assert "--cpus-per-task=4 --no-kill --exclude=first bash -c until ray start --block" in asked_of_others
    assert asked_of_others.endswith("node 10.0.0.7:20017\n")


# -- Kubernetes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--claim", "runs"), ("--pool",), ("--engine-nodes", "0", "--head-gpus", "4")])
def test_a_manifest_is_a_valid_ray_job(capsys: pytest.CaptureFixture[str], more: tuple[str, ...]) -> None:
    manifest = yaml.safe_load(rendered(capsys, *KUBERNETES, *more, "--", *RUN))
    jsonschema.validate(manifest, RAY_JOB)
    for pod in pods(manifest):
        volumes = [volume["name"] for volume in pod["volumes"]]
        mounted = {mount["name"] for each in containers(pod) for mount in each.get("volumeMounts", [])}
        assert mounted == set(volumes)
        assert len(set(volumes)) == len(volumes)


def test_the_run_of_a_manifest_is_the_requested_one(capsys: pytest.CaptureFixture[str]) -> None:
    manifest = yaml.safe_load(rendered(capsys, *KUBERNETES, "--", *RUN))
    words = shlex.split(manifest["spec"]["entrypoint"])
    assert words == ["python", "-m", "launch.templates.entrypoint", "/runs", "longshore", "6", "--", *RUN]


def test_agent_pods_have_a_docker_engine_with_the_toolchain_at_the_same_path(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The engine mounts the toolchain into sandboxes by the path that it is told."""
    manifest = yaml.safe_load(rendered(capsys, *KUBERNETES, "--", *RUN))
    head, engines, agents = pods(manifest)
    assert not any("initContainers" in pod for pod in (head, engines))
    engine, made_ready = agents["initContainers"]
    (node,) = agents["containers"]
    home = {each["name"]: each["value"] for each in node["env"]}["LONGSHORE_HOME"]
    for each in (engine, made_ready, node):
        assert {"name": "home", "mountPath": home} in each["volumeMounts"]
    assert made_ready["command"][-2:] == ["sandbox.host", "up"]


def test_only_engine_pods_request_gpus_and_every_node_has_the_ray_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifest = yaml.safe_load(rendered(capsys, *KUBERNETES, "--", *RUN))
    nodes = [pod["containers"][0] for pod in pods(manifest)]
    assert ["nvidia.com/gpu" in node["resources"]["limits"] for node in nodes] == [False, True, False]
    for node in nodes:
        assert CLUSTER_RAY_ENVIRONMENT.items() <= {each["name"]: each["value"] for each in node["env"]}.items()
    labels = [group["labels"][ROLES_LABEL] for group in manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"]]
    assert labels == ["engine", "worker"]


def pods(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = manifest["spec"]["rayClusterSpec"]
    return [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


# -- both --------------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"]), min_size=1), max_size=5))
def test_every_argument_survives_shell_quoting(words: list[str]) -> None:
    line = ClusterJob(name="job", words=tuple(words)).command(runs="/my $runs", run="job-1", nodes=2)
    assert shlex.split(line) == ["python", "-m", "launch.templates.entrypoint", "/my $runs", "job-1", "2", "--", *words]


@pytest.mark.parametrize("kind", [SLURM, KUBERNETES])
def test_a_template_holds_no_secret(capsys: pytest.CaptureFixture[str], kind: tuple[str, ...]) -> None:
    """It is mailed, and kept in repositories: whoever reads it may not join the cluster for that."""
    first, second = (rendered(capsys, *kind, "--", *RUN) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*SLURM, "--", *RUN, "--address", "a:1"), "--address is filled in by the template"),
        ((*SLURM, "--", *RUN, "--nodes=3"), "--nodes=3 is filled in by the template"),
        ((*SLURM, "--", "--stps", "3"), "did you mean '--steps'"),
        ((*SLURM, "--", *RUN, "--set", "engine.cout=3"), "did you mean"),
        ((*KUBERNETES, "--", "dmo"), "did you mean 'demo'"),
        ((*SLURM, "--name", "My Run", "--", *RUN), "lower-case letters"),
        ((*SLURM, "--account", "a\nb", "--", *RUN), "need quoting"),
        ((*KUBERNETES, "--agent-nodes", "0", "--", *RUN), "leaves no node for sandboxes"),
    ],
)
def test_arguments_that_would_fail_in_the_queued_job_are_refused_at_once(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        command.COMMAND.call(words)


@pytest.mark.parametrize("kind", [SLURM, KUBERNETES])
def test_paths_of_the_job_need_not_exist_on_this_machine(
    kind: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "/opt/mine.toml" in rendered(capsys, *kind, "--", "/opt/mine.toml", "--set", "my.key=1")
    assert "/models/qwen3" in rendered(capsys, *kind, "--", "demo", "--model", "/models/qwen3")


def test_a_template_is_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "job.sh"
    assert rendered(capsys, *SLURM, "--output", str(script), "--", *RUN) == ""
    assert script.read_text().startswith("#!/bin/bash\n#SBATCH")
    with pytest.raises(UserError, match="cannot be written"):
        command.COMMAND.call([*SLURM, "--output", str(tmp_path / "no" / "where"), "--", *RUN])


def test_a_job_that_is_started_again_goes_on_with_its_run(tmp_path: Path) -> None:
    env = {"RAY_ADDRESS": "10.0.0.7:6379"}
    arguments = [str(tmp_path), "mine", "4", "--", "demo"]
    first = parse_cluster_arguments(make_cluster_arguments(arguments, env))
    assert (first.new_run_id, first.resumed_run) == ("mine", None)
    cluster = load_recipe("demo", first.config_overrides()).cluster
    assert (cluster.nodes, cluster.address) == (4, "10.0.0.7:6379")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    again = parse_cluster_arguments(make_cluster_arguments(arguments, env))
    assert (again.new_run_id, again.resumed_run) == (None, "mine")


def test_a_start_without_a_cluster_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="export RAY_ADDRESS="):
        make_cluster_arguments([str(tmp_path), "mine", "4", "--"], {})
