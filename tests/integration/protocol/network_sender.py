"""A worker's sender in a process of its own.

It reads its orders as one JSON line from standard input (endpoint, keys, groups), sends every sample of those groups,
and prints the id of each that was acknowledged.  After the first group it waits for another line.
"""

from __future__ import annotations

import asyncio
import json
import sys

from protocol.stream import CurveClient, TrajectorySender
from protocol.trajectory import Trajectory
from tests.support.runs.trajectories import RUN, make_trajectory

DEADLINE_S = 600.0


async def main() -> None:
    orders = json.loads(sys.stdin.readline())
    curve = CurveClient(*(key.encode() for key in orders["keys"]))

    async def send(sender: TrajectorySender, trajectory: Trajectory) -> None:
        outcome = await sender.send(trajectory, DEADLINE_S)
        sys.stdout.write(f"{trajectory.request.trajectory_id} {outcome.value}\n")
        sys.stdout.flush()

    async with TrajectorySender(orders["endpoint"], RUN, orders["name"], heartbeat_s=0.2, curve=curve) as sender:
        for group in range(*orders["groups"]):
            async with asyncio.TaskGroup() as sends:
                for sample in range(4):
                    trajectory = make_trajectory(group, sample, reward=float(sample), sampled=2000)
                    sends.create_task(send(sender, trajectory))
            if group == orders["groups"][0]:
                await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main())
