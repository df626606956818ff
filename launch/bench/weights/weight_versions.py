"""Makes weight versions: a learner's weights before and after one RL step in bfloat16."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from actors.weight_transport.source import WeightSource
from actors.weight_transport.version_folders import delete_versions_before, version_folder
from launch.bench.isolated_process import isolate
from launch.bench.learner.workload import (
    TEN_MILLION,
    LearnerWorkload,
    build_workload_model,
    encode_batch,
    initial_lineage,
)
from learner.rank import LearnerRank
from learner.settings import Dtype, TrainerSettings
from learner.spec import LearnerSpec
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion

CONTEXT_TOKENS = 1024
"""Length of the longest trained trajectory in tokens."""
_WORK = LearnerWorkload(TEN_MILLION, (CONTEXT_TOKENS, *[64] * 7))
"""Workload of one group, with a trajectory of the model's whole context."""
_KEPT = 24
"""Number of kept versions; the last one of a route is still there when its turn comes again."""


class WeightStep(NamedTuple):
    before: WeightManifest
    after: WeightManifest


class StepPublisher:
    """Runs in a separate process with the learner."""

    def __init__(self, root: Path, context_tokens: int) -> None:
        self._root = root
        build_workload_model(_WORK, root / "model", context_tokens)

    def publish_step(self, lr: float) -> WeightStep:
        """Publish, take the first step at this learning rate, and publish again."""
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        rank = LearnerRank(
            LearnerSpec(str(self._root / "model"), TrainerSettings(device=device, dtype=Dtype.BFLOAT16, lr=lr))
        )
        rank.setup()
        before = self._publish(rank, lr, 0)
        rank.step(1, encode_batch(_WORK), initial_lineage(), WeightVersion(0))
        after = self._publish(rank, lr, 1)
        rank.close()
        return WeightStep(before, after)

    def _publish(self, rank: LearnerRank, lr: float, version: int) -> WeightManifest:
        folder = version_folder(self._root / f"lr-{lr:g}", version)
        manifest = rank.publish(WeightVersion(version), version, NO_VERSION, str(folder))
        assert manifest is not None  # noqa: S101  # one rank, which writes
        return manifest


def publish_steps(root: Path, rates: tuple[float, ...], context_tokens: int) -> dict[float, WeightStep]:
    """Return learning rate → weights before and after the first step, in folders of ``root``, for a model with this
    context."""
    with isolate(partial(StepPublisher, root, context_tokens)) as learner:
        return {lr: learner.call(StepPublisher.publish_step, lr) for lr in rates}


async def delta_bytes_share(step: WeightStep) -> float:
    """Return the bytes of the delta ÷ the bytes of the version's files."""
    source = WeightSource()
    plan = await source.plan_transfer(step.after, [step.before.version])
    blocks = [await source.read_delta_block(plan, file, index) for file in plan.files for index in range(file.blocks)]
    return sum(map(len, blocks)) / plan.bytes


class VersionSequence:
    """Publishes both sides of a step in turn, each time as a new version in its own folder."""

    def __init__(self, root: Path, step: WeightStep) -> None:
        self._root, self._step, self._count = root, step, 0
        self._turns = Counter[str]()

    def next_version(self, route: str) -> WeightManifest:
        """Return a new version with the side that ``route`` did not get last, so that the change is one step."""
        version, of = WeightVersion(self._count), self._step[self._turns[route] % 2]
        self._turns[route] += 1
        folder = version_folder(self._root, version)
        folder.mkdir(parents=True)
        for path in Path(of.path).iterdir():
            os.link(path, folder / path.name)
        delete_versions_before(self._root, version, keep=_KEPT)
        self._count += 1
        return replace(of, version=version, step=version, path=str(folder))
