"""Publishes the learner's weights, each under a new version, and removes versions that nothing uses any more.

Training waits only for a copy of the weights, which is written during the next steps.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, field
from typing import NamedTuple

from actors.weight_transport.version_folders import delete_versions_before, version_folder
from launch.actor_group.learner_group import LearnerGroup
from launch.training.learner_client import LearnerClient
from launch.training.state import TrainingState
from launch.weight_sync.manager import WeightSyncManager
from learner.rank import LearnerRank
from protocol.activity import ActivityLog
from protocol.events import EventLog
from protocol.run_directory.lineage_log import LineageLog
from protocol.weights import NO_VERSION, Lineage, WeightManifest, WeightVersion, make_version

_KEPT_VERSIONS = 4


class WeightCopy(NamedTuple):
    """Weights that are copied but not yet written."""

    version: WeightVersion
    step: int
    parent: WeightVersion
    learners: LearnerGroup
    """The ranks that hold the copy."""


@dataclass(slots=True, kw_only=True)
class WeightPublisher:
    """Writes the learner's weights under new versions, and removes those that nothing uses."""

    state: TrainingState
    weight_sync: WeightSyncManager
    events: EventLog
    activity: ActivityLog
    learner: LearnerClient
    version: WeightVersion = NO_VERSION
    """Version of the learner's current weights."""
    is_published: bool = False
    """Whether the current weights were copied for publishing."""
    lineage: Lineage = field(default_factory=Lineage)
    _count: int = 0
    _lineage_log: LineageLog = field(init=False)

    def __post_init__(self) -> None:
        self._lineage_log = LineageLog(self.state.run_dir)

    def resume_from(self, version: WeightVersion, lineage: Lineage) -> None:
        """Continue from the weights of ``version``; later versions of this run stay in the lineage."""
        self.version = version
        self.lineage = Lineage(self._lineage_log.read().entries | lineage.entries)

    def new_version(self, step: int) -> WeightVersion:
        """Give the weights after ``step`` a version, without publishing them."""
        version = make_version(self.state.start_number, self._count)
        self._count += 1
        self.lineage.add(version, step, self.version)
        self._lineage_log.append(self.lineage.entries[version])
        self.version, self.is_published = version, False
        return version

    async def copy_weights(self) -> WeightCopy:
        """Let the learner copy its current weights under a new version."""
        step = self.state.step
        parent, version = self.version, self.new_version(step)
        await self.learner.call(LearnerRank.begin_publish)
        self.is_published = True
        return WeightCopy(version, step, parent, self.learner.ranks)

    async def write_version(self, copied: WeightCopy) -> WeightManifest:
        """Write the copy, and remove older versions that no engine uses any more."""
        version, step, parent, learners = copied
        folder = version_folder(self.state.run_dir / "weights", version)
        with self.activity.track("publishing"):
            manifest = await learners.call_concurrently(LearnerRank.end_publish, version, step, parent, str(folder))
        assert manifest is not None  # noqa: S101  # rank 0 writes
        self.events.emit("weights.published", version=version, step=step, sha256=manifest.sha256)
        await asyncio.to_thread(self._delete_old_versions)
        return manifest

    async def delete_partial(self) -> None:
        """Remove weights that a killed learner wrote in part."""
        for partial in (self.state.run_dir / "weights").glob(".v*"):
            await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)

    def _delete_old_versions(self) -> None:
        """Delete a version's files once every engine with a server serves a later one."""
        if (served := self.weight_sync.served) is not None:
            delete_versions_before(self.state.run_dir / "weights", served.version, keep=_KEPT_VERSIONS)
