"""``longshore templates slurm|kubernetes … -- RUN``: write a Slurm script or a KubeRay manifest for a run.

The words after ``--`` are arguments of ``longshore cluster``, without ``--address``, ``--nodes`` and the run's name,
which the template fills in.  The file goes to standard output or to ``--output FILE``.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from tyro.conf import Positional, subcommand

from launch.templates import kubernetes, slurm
from launch.templates.job import make_job
from launch.templates.kubernetes import KubernetesJob, PodGroup
from launch.templates.slurm import SlurmJob
from protocol.cli.arguments import AtLeastOne, CommandArguments, Count, Flag, JsonFlag, Text, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput, display_path, error_console
from protocol.errors import UserError


def _require_plain_word(text: str) -> str:
    if not re.fullmatch(r"[\w.:/@,+-]*", text):
        raise ValueError(f"{text!r} has characters that need quoting in the script: use letters, digits and .:/@,+-_")
    return text


PlainWord = Annotated[str, AfterValidator(_require_plain_word)]
"""Word that needs no quotes in a script."""


class JobArguments(CommandArguments):
    """Arguments of every template; the words after ``--`` are for ``longshore cluster``."""

    run: Positional[Annotated[tuple[str, ...], option("[-- WORD ...]")]] = ()
    """Arguments of longshore cluster: -- demo --steps 100."""
    name: Text = "longshore"
    """Name of the job, and prefix of the run id."""
    output: Annotated[Path | None, option("FILE")] = None
    """File to write; default: standard output."""
    as_json: JsonFlag = False


class SlurmArguments(JobArguments):
    """Write a batch script for a number of equal nodes."""

    nodes: AtLeastOne
    """Nodes of the job."""
    cpus: AtLeastOne = 16
    """CPUs per node."""
    gpus: Count = 0
    """GPUs per node."""
    time: Annotated[PlainWord, option("HH:MM:SS")] = "24:00:00"
    """Time limit in Slurm's format."""
    partition: Annotated[PlainWord, option("PARTITION")] = ""
    """Slurm partition."""
    account: Annotated[PlainWord, option("ACCOUNT")] = ""
    """Slurm account."""
    venv: Annotated[str, option("FOLDER", show_default=False)] = sys.prefix
    """Virtual environment on all nodes; default: this one."""
    runs: Annotated[str, option("FOLDER")] = "/var/tmp/longshore-runs"  # noqa: S108  what Slurm keeps between two starts of a job
    """Folder of the runs, on the first node's local disk."""


class KubernetesArguments(JobArguments):
    """Write a RayJob with a learner node, engine nodes and agent nodes."""

    image: Annotated[PlainWord, option("IMAGE")]
    """Container image with longshore, Ray and SGLang."""
    engine_nodes: Count = 1
    """Number of engine nodes."""
    agent_nodes: Count = 1
    """Number of agent nodes."""
    gpus: Count = 0
    """GPUs per engine node."""
    head_gpus: Count = 0
    """GPUs of the learner node."""
    cpus: AtLeastOne = 8
    """CPUs per node."""
    memory_gb: Annotated[int, option("GiB"), Field(ge=4)] = 32
    """Memory per node, in GiB."""
    claim: Annotated[PlainWord, option("CLAIM")] = ""
    """Volume claim for the run's directory, on block storage."""
    base_image: Annotated[PlainWord, option("IMAGE")] = "debian:bookworm"
    """Default image of tasks."""
    pool: Flag = False
    """Use sandboxes of pool servers (-- --set sandbox.urls=…) instead of the nodes' own."""


class TemplatesArguments(CommandArguments):
    """Write a Slurm script or a KubeRay manifest for a run.

    Example: longshore templates slurm --nodes 8 --gpus 8 -- demo --model /models/qwen3
    """

    kind: Annotated[SlurmArguments, subcommand("slurm")] | Annotated[KubernetesArguments, subcommand("kubernetes")]


def run(given: TemplatesArguments, out: JsonOutput) -> None:
    """Write the template's text."""
    job, name = given.kind, "slurm" if isinstance(given.kind, SlurmArguments) else "kubernetes"
    text = (
        slurm.render_slurm(_slurm(job))
        if isinstance(job, SlurmArguments)
        else kubernetes.render_kubernetes(_kubernetes(job))
    )
    out.set_result({"kind": name, "output": str(job.output or ""), "text": text})
    if job.output is not None:
        _write(job.output, text)
        start = "sbatch" if name == "slurm" else "kubectl apply -f"
        shown = display_path(job.output)
        error_console().print(f"written to {shown}; start it with: {start} {shown}")
    elif not out.enabled:
        sys.stdout.write(text)


def _slurm(given: SlurmArguments) -> SlurmJob:
    return SlurmJob(
        job=make_job(given.name, given.run),
        nodes=given.nodes,
        cpus=given.cpus,
        gpus=given.gpus,
        time=given.time,
        partition=given.partition,
        account=given.account,
        venv=given.venv,
        runs=given.runs,
    )


def _kubernetes(given: KubernetesArguments) -> KubernetesJob:
    if not given.agent_nodes:
        raise UserError(
            "--agent-nodes 0 leaves no node for sandboxes, as the learner's node has no Docker engine: write "
            "--agent-nodes 1"
        )
    size = {"cpus": given.cpus, "memory_gb": given.memory_gb}
    return KubernetesJob(
        job=make_job(given.name, given.run),
        image=given.image,
        ray_version=importlib.metadata.version("ray"),
        head=PodGroup(count=1, gpus=given.head_gpus, **size),
        engines=PodGroup(count=given.engine_nodes, gpus=given.gpus, **size),
        agents=PodGroup(count=given.agent_nodes, **size),
        claim=given.claim,
        base_image=given.base_image,
        docker=not given.pool,
    )


def _write(path: Path, text: str) -> None:
    """Write the file.  Raises UserError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


COMMAND = Command("templates", TemplatesArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
