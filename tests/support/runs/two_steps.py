"""Two steps of a learner on recorded trajectories, in a process that :func:`learner_process` starts."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from learner.messages import StepReport
from learner.rank import LearnerRank
from protocol.codec import pack_trajectory
from protocol.processes.loopback import find_free_port
from protocol.trajectory import Trajectory
from protocol.weights import NO_VERSION, Lineage, WeightVersion
from tests.support.runs.learner_specs import make_spec

MODEL_VERSION = WeightVersion(1)
"""Version of the model's own weights, which sampled the trajectories."""


class TwoSteps(NamedTuple):
    reports: list[StepReport]
    digests: list[str]
    """Digest of the weights before the steps, between them and after them."""


@contextmanager
def learner_process() -> Generator[ProcessPoolExecutor]:
    """Start a process that imports torch and megatron at its first work, once."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        yield process


async def train_two_steps(process: ProcessPoolExecutor, model: Path, trajectories: Sequence[Trajectory]) -> TwoSteps:
    """Take both steps on the same trajectories."""
    blobs = [pack_trajectory(each) for each in trajectories]
    return await asyncio.get_running_loop().run_in_executor(process, _train, str(model), blobs)


def _train(model: str, blobs: list[bytes]) -> TwoSteps:
    spec = make_spec(model, threads=1, dtype="float32", lr=1e-3, micro_batch_tokens=65_536, call_timeout_s=75.0)
    rank = LearnerRank(spec, master_port=find_free_port())
    rank.setup()
    lineage = Lineage()
    lineage.add(MODEL_VERSION, 0, NO_VERSION)
    reports, digests = list[StepReport](), [rank.weights_digest()]
    for step in (1, 2):
        reports.append(rank.step(step, blobs, lineage, MODEL_VERSION))
        digests.append(rank.weights_digest())
    rank.close()
    return TwoSteps(reports, digests)
