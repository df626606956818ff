"""Run by a test on a cluster's head: settles another machine, has an actor write there, and takes it all down.
``CLUSTER FOLDER HEAD [stays]``; with the last one it says when all is settled, and stays."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from dataclasses import replace
from pathlib import Path

from actors.runtime.remote import ActorOptions, Remote, spawn_actor
from launch.config import load_recipe
from launch.hosts.cluster_nodes import ClusterNode, NodeRole, join_cluster_nodes
from launch.hosts.node_checks import check_nodes, restrict_roles
from launch.hosts.node_requirements import make_node_requirements
from launch.hosts.placement import actor_run_dir
from launch.hosts.remote_hosts import RemoteHosts
from launch.hosts.slot_reservation import plan_slots, reserve_slots
from launch.processes.process_reaper import RUN_TOKEN_VARIABLE, host_token
from launch.run_records.run_directory import RunDirectory
from protocol.events import EventLog

ENGINE = "engine-0"


class NodeFiles:
    """Writes events where its machine's actors do."""

    def __init__(self, folder: Path) -> None:
        self._events = EventLog(folder, "noted", "node-1")

    async def note(self) -> None:
        self._events.emit("noted")

    def read(self, path: Path) -> str:
        return path.read_text()


async def main(cluster: str, folder: Path, *words: str) -> None:
    token = os.environ[RUN_TOKEN_VARIABLE] = secrets.token_hex(8)
    config = load_recipe("demo", [f"cluster.address={cluster}", "cluster.nodes=2"])
    model = folder.with_name("model")
    model.mkdir()
    (model / "tokenizer.json").write_text("tokenizer")
    with RunDirectory.create(folder.parent, "demo", folder.name) as directory:
        events = EventLog(directory.path, "driver", "node-0")

        def on(node: ClusterNode, name: str, cls: object, /, *args: object, **kwargs: object) -> Remote[object]:
            env = {RUN_TOKEN_VARIABLE: host_token(token, node.address)} if node.remote else {}
            return spawn_actor(
                cls, ActorOptions(name=name, node_id=node.ray_id, max_restarts=-1, env=env), *args, **kwargs
            )

        async with join_cluster_nodes(cluster, 2, 600.0, {RUN_TOKEN_VARIABLE: token}, lambda _: None) as found:
            requirements = make_node_requirements(config)
            requirements = replace(
                requirements, host_requirements=replace(requirements.host_requirements, reserve_mb=1)
            )
            findings = await check_nodes(found, requirements)
            head, second = nodes = restrict_roles(found, findings)
            remote = RemoteHosts(config, directory, events, model=model, spawn_on=on, token=token, settled_s=0.0)
            async with reserve_slots("test/1", plan_slots(config, head, {ENGINE: second}, {}, {})) as places:
                await remote.prepare_nodes(nodes, {})
                machine = remote.hosts[second.address]
                settings = ActorOptions(name=ENGINE, bundle=places[ENGINE])
                noting = spawn_actor(NodeFiles, settings, actor_run_dir(config, directory, second))
                for _ in range(3):
                    await noting.call(NodeFiles.note)
                if words[1:] == ("stays",):
                    say("settled")
                    await asyncio.Event().wait()
                there = await noting.call(NodeFiles.read, Path(machine.model_folder) / "tokenizer.json")
                await remote.close(None)
                output = {
                    "roles": [sorted(role.value for role in node.roles & {NodeRole.ENGINE}) for node in nodes],
                    "findings": {name: [str(each) for each in each_of] for name, each_of in findings.items()},
                    "remote": [node.remote for node in nodes],
                    "model": there,
                    "model_path": str(machine.model_folder),
                    "held": sorted(places),
                }
    say(json.dumps(output))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
