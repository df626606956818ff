"""Renders a batch script for Slurm: Ray's head and the driver on the first node, a Ray node on each other one.

Slurm's signal before the time limit stops the run in order, and a requeued job resumes the run.  A failing node ends
neither job nor step: the run continues without it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from launch.hosts.ray_environment import CLUSTER_RAY_ENVIRONMENT
from launch.templates.job import ClusterJob

_WARNING_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    job: ClusterJob
    nodes: int
    cpus: int
    """Number of CPUs per node."""
    gpus: int
    """Number of GPUs per node."""
    time: str
    """Time limit in Slurm's format."""
    partition: str
    account: str
    venv: str
    """Folder of the virtual environment, on every node."""
    runs: str
    """Folder of runs, on the first node's local disk."""


def render_slurm(slurm: SlurmJob) -> str:
    run = f'{slurm.job.name}-"$SLURM_JOB_ID"'  # the same for a requeued job
    return f"""#!/bin/bash
{_directives(slurm)}
# Ray's head and the driver run on the first node, which this script runs on, and a Ray node on each other one.
set -euo pipefail
source {shlex.quote(slurm.venv)}/bin/activate

# Only processes with this job's token may join; it exists only in the environment.
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
# A node is given up only after it was unreachable for this long.
{_exports()}

address=${{LONGSHORE_HEAD_ADDRESS:-$(hostname -I | cut -d' ' -f1)}}
port=$((20000 + SLURM_JOB_ID % 20000))

ray start --head --block --node-ip-address="$address" --port="$port" --include-dashboard=false \\
    --temp-dir="/tmp/ray-$SLURM_JOB_ID" &
head=$!
trap 'kill "$head" 2>/dev/null || true' EXIT
for _ in $(seq 120); do
    ray health-check --address "$address:$port" >/dev/null 2>&1 && break
    kill -0 "$head" 2>/dev/null || {{ echo "Ray's head did not start" >&2; exit 1; }}
    sleep 1
done

if [ "$SLURM_NNODES" -gt 1 ]; then
    srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --ntasks-per-node=1 \\
        --cpus-per-task={slurm.cpus} --no-kill --exclude="$SLURMD_NODENAME" \\
        bash -c 'until ray start --block --address="$1"; do sleep 5; done' node "$address:$port" & # retries
    others=$!
    trap 'kill "$others" "$head" 2>/dev/null || true' EXIT
fi

export RAY_ADDRESS="$address:$port"
{slurm.job.command(runs=slurm.runs, run=run, nodes=slurm.nodes)} &
driver=$!
trap 'kill -TERM "$driver" 2>/dev/null || true' TERM INT  # Slurm's warning: the run stops in order
code=0
wait "$driver" || code=$?
while kill -0 "$driver" 2>/dev/null; do # a signal ends a wait, not the driver
    code=0
    wait "$driver" || code=$?
done
exit "$code"
"""


def _directives(slurm: SlurmJob) -> str:
    options = {
        "job-name": slurm.job.name,
        "nodes": str(slurm.nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": str(slurm.cpus),
        "gpus-per-node": str(slurm.gpus) if slurm.gpus else "",
        "time": slurm.time,
        "partition": slurm.partition,
        "account": slurm.account,
        "signal": f"B:TERM@{_WARNING_S}",
        "output": f"{slurm.job.name}-%j.log",
        "open-mode": "append",
    }
    lines = [f"#SBATCH --{key}={value}" for key, value in options.items() if value]
    return "\n".join([*lines, "#SBATCH --requeue", "#SBATCH --no-kill"])


def _exports() -> str:
    return "\n".join(f"export {name}={value}" for name, value in CLUSTER_RAY_ENVIRONMENT.items())
