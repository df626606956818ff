"""The Ray nodes of a run: started here, or those of a cluster that the run joins, checked for what they need."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from launch.hosts.cluster_context import ClusterContext
from launch.hosts.cluster_nodes import ClusterNode, join_cluster_nodes, ray_head_processes, start_local_nodes
from launch.hosts.node_checks import check_nodes, describe_findings, restrict_roles
from launch.hosts.node_requirements import make_node_requirements
from launch.hosts.ray_log import redirect_ray_log
from launch.processes.process_reaper import RUN_TOKEN_VARIABLE
from launch.run_records.run_context import RunContext


class RunNodes(NamedTuple):
    nodes: list[ClusterNode]
    """The driver's node first."""
    cluster: ClusterContext


@asynccontextmanager
async def run_nodes(run: RunContext, temporary: Path, *, has_docker: bool) -> AsyncGenerator[RunNodes]:
    """Join the cluster or start local nodes for as long as the context is open; ``temporary`` holds Ray's session.
    Raises UserError for a node with a problem that a person has to fix."""
    cluster = run.config.cluster
    run.enter_phase("nodes", f"joining {cluster.address}" if cluster.address else "starting Ray")
    open_nodes = _joined_nodes(run, has_docker) if cluster.address else _local_nodes(run, temporary, has_docker)
    with redirect_ray_log(run.directory.logs / "ray.log"):
        async with open_nodes as found:
            for node in found.nodes:
                run.events.emit("node.up", name=node.name, address=node.address)
            yield found


@asynccontextmanager
async def _local_nodes(run: RunContext, temporary: Path, has_docker: bool) -> AsyncGenerator[RunNodes]:
    count = run.config.cluster.nodes
    if count > 1:
        run.console.print(f"no --address: {count} Ray nodes are simulated on this machine")
    async with start_local_nodes(count, temporary) as nodes:
        own = tuple(ray_head_processes(temporary))
        yield RunNodes(nodes, ClusterContext(own, has_docker=has_docker, private_folder=temporary))


@asynccontextmanager
async def _joined_nodes(run: RunContext, has_docker: bool) -> AsyncGenerator[RunNodes]:
    """Join a cluster and give its nodes the roles that they can fill."""
    cluster, token = run.config.cluster, {RUN_TOKEN_VARIABLE: os.environ[RUN_TOKEN_VARIABLE]}

    def report_alive(alive: int) -> None:
        run.console.print(f"{alive} of {cluster.nodes} Ray nodes alive")

    async with join_cluster_nodes(cluster.address, cluster.nodes, cluster.node_wait_s, token, report_alive) as nodes:
        requirements = await asyncio.to_thread(make_node_requirements, run.config)
        findings = await check_nodes(nodes, requirements)
        able = restrict_roles(nodes, findings)
        for line in describe_findings(nodes, findings):
            run.console.print(line)
        yield RunNodes(able, ClusterContext(node_requirements=requirements, has_docker=has_docker))
