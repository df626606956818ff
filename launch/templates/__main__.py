"""``python -m launch.templates slurm|kubernetes … -- RUN``: write a Slurm script or a KubeRay manifest for a run.

What follows ``--`` is for ``python -m launch.cluster``, without ``--address``, ``--nodes`` and the run's name, which
the template fills in.  The file goes to standard output, or to ``--out FILE``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from launch.templates import kubernetes, slurm
from launch.templates.job import make_job
from launch.templates.kubernetes import KubernetesJob, PodGroup
from launch.templates.slurm import SlurmJob
from protocol.cli.exit_codes import main_guard
from protocol.cli.numbers import integer_between
from protocol.cli.output import display_path, error_console
from protocol.cli.parser import CommandLineParser, parse_command_line
from protocol.errors import UserError


def main(argv: Sequence[str] | None = None) -> None:
    """See the module."""
    with parse_command_line(_parser(), argv) as (given, out):
        text = (
            slurm.render_slurm(_slurm(given))
            if given.kind == "slurm"
            else kubernetes.render_kubernetes(_kubernetes(given))
        )
        out.set_result({"kind": given.kind, "out": str(given.out or ""), "text": text})
        if given.out is not None:
            _write(given.out, text)
            start = "sbatch" if given.kind == "slurm" else "kubectl apply -f"
            error_console().print(
                f"written to {display_path(given.out)}; start it with: {start} {display_path(given.out)}"
            )
        elif not given.json:
            sys.stdout.write(text)


def _parser() -> CommandLineParser:
    parser = CommandLineParser(
        prog="python -m launch.templates",
        description="Write a Slurm script or a KubeRay manifest for a run.",
        epilog="Example: python -m launch.templates slurm --nodes 8 --gpus 8 -- --recipe demo --model /models/qwen3",
    )
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="slurm|kubernetes")
    _add_slurm(kinds.add_parser("slurm", help="a batch script: the same kind of node, so many times"))
    _add_kubernetes(kinds.add_parser("kubernetes", help="a RayJob: the learner's node, engines' and agents'"))
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("run", nargs="*", metavar="-- RUN", help="words for python -m launch.cluster: -- --recipe demo --steps 100")
    add("--name", default="longshore", help="of the job, and first part of the run's (default: %(default)s)")
    add("--out", type=Path, metavar="FILE", help="write it there; default: standard output")
    add("--json", action="store_true", help="print the file's text as one JSON object")


def _add_slurm(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nodes", type=integer_between(1), required=True, metavar="N", help="nodes of the job")
    add(
        "--cpus",
        type=integer_between(1),
        default=16,
        metavar="N",
        help="processors of each node (default: %(default)s)",
    )
    add("--gpus", type=integer_between(0), default=0, metavar="N", help="GPUs of each node (default: none)")
    add("--time", type=_word, default="24:00:00", help="longest time, as Slurm writes it (default: %(default)s)")
    add("--partition", type=_word, default="", help="Slurm's partition")
    add("--account", type=_word, default="", help="Slurm's account")
    add("--environment", default=sys.prefix, metavar="FOLDER", help="virtual environment on all nodes (default: this)")
    add("--runs", default="/var/tmp/longshore-runs", metavar="FOLDER", help="runs, on the first node's local disk")  # noqa: S108  what Slurm keeps between two starts of a job
    _add_common(parser)


def _add_kubernetes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--image", type=_word, required=True, help="container image with longshore, Ray and SGLang")
    add("--engines", type=integer_between(0), default=1, metavar="N", help="nodes with engines (default: %(default)s)")
    add("--agents", type=integer_between(0), default=1, metavar="N", help="nodes with agents (default: %(default)s)")
    add("--gpus", type=integer_between(0), default=0, metavar="N", help="GPUs of a node with engines (default: none)")
    add(
        "--head-gpus",
        type=integer_between(0),
        default=0,
        metavar="N",
        help="GPUs of the learner's node (default: none)",
    )
    add(
        "--cpus", type=integer_between(1), default=8, metavar="N", help="processors of each node (default: %(default)s)"
    )
    add(
        "--memory-gb",
        type=integer_between(4),
        default=32,
        metavar="N",
        help="memory of each node (default: %(default)s)",
    )
    add("--claim", type=_word, default="", help="volume claim for the run's directory, on block storage")
    add("--base-image", type=_word, default="debian:bookworm", help="of tasks that name none (default: %(default)s)")
    add("--pool", action="store_true", help="sandboxes are pool servers' (-- --set sandbox.urls=…), not the nodes' own")
    _add_common(parser)


def _word(text: str) -> str:
    if not re.fullmatch(r"[\w.:/@,+-]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} has characters that would not stay in their place")
    return text


def _slurm(given: argparse.Namespace) -> SlurmJob:
    return SlurmJob(
        job=make_job(given.name, given.run),
        nodes=given.nodes,
        cpus=given.cpus,
        gpus=given.gpus,
        time=given.time,
        partition=given.partition,
        account=given.account,
        environment=given.environment,
        runs=given.runs,
    )


def _kubernetes(given: argparse.Namespace) -> KubernetesJob:
    if not given.agents:
        raise UserError("--agents 0 leaves nobody to work: the learner's node has no Docker engine; say --agents 1")
    size = {"cpus": given.cpus, "memory_gb": given.memory_gb}
    return KubernetesJob(
        job=make_job(given.name, given.run),
        image=given.image,
        ray_version=importlib.metadata.version("ray"),
        head=PodGroup(count=1, gpus=given.head_gpus, **size),
        engines=PodGroup(count=given.engines, gpus=given.gpus, **size),
        agents=PodGroup(count=given.agents, **size),
        claim=given.claim,
        base_image=given.base_image,
        docker=not given.pool,
    )


def _write(path: Path, text: str) -> None:
    """Raises UserError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main_guard(main))
