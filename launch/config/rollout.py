"""Where trajectories come from: data, agent, rollout, sampling, engines, sandboxes, evaluation."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import field_validator, model_validator

from actors.agents.settings import AgentSettings
from actors.rewards.settings import OutcomeSettings
from actors.rollout.settings import EpisodeSettings, HarnessSettings
from actors.scheduler.settings import CurriculumSettings, SchedulerSettings
from actors.workers.settings import WorkerSettings
from protocol.cli.suggestions import did_you_mean
from protocol.plugins import PluginGroup, plugin_names
from protocol.settings import ConfigSection, CountInt, PositiveInt
from sandbox.tasks.dataset_catalog import CATALOG_FILE as DATASETS
from sandbox.tasks.formats.registry import TaskFormat


class DataKind(StrEnum):
    GENERATED = "generated"
    """Terminal tasks made by seed, in Terminal-Bench's format."""
    TERMINAL_BENCH = "terminal_bench"
    """A folder of task folders in Terminal-Bench's format."""
    DATASET = "dataset"
    """Whatever lies at a path, in the format that its files look like; or a label of a ``datasets.toml``."""


_KINDS: list[str] = [*DataKind, *(form for form in TaskFormat if form not in list(DataKind))]
"""Without those that packages add."""


class DataSection(CurriculumSettings):
    kind: str = DataKind.GENERATED
    """Where tasks come from: ``generated`` by seed, a ``dataset`` whose format is seen, or a format by its name, with
    which ``path`` is read: ``terminal_bench``, ``harbor``, ``openclaw``, ``openclaw_messages``, ``miles``,
    ``swe_synth``, ``code``, or one that a package adds (docs/plugins.md)."""
    path: Path | None = None
    """Folder of task folders, file of rows, or, with ``label``, a ``datasets.toml``."""
    label: str = ""
    """Which data set of the ``datasets.toml`` at ``path``, with ``kind = "dataset"``."""
    root: Path | None = None
    """What the paths in rows are relative to; left out for where the rows lie."""
    task_ids: tuple[str, ...] = ()
    """Of these tasks only: ids, numbers that ids end with, and ranges of them, ``101-110``.  Empty for all."""
    held_out_ids: tuple[str, ...] = ()
    """The tasks that are held out, named as in ``task_ids`` and whether or not that names them too; all others are
    trained.  Empty for a fifth, of each family at most ``evaluation.tasks_per_family``."""
    training_tasks: PositiveInt = 480
    """Generated tasks to train on, over all families but the held-out one."""
    held_out_family: str = ""
    """A family that only the evaluation sees, reported apart; empty for none."""

    @property
    def generated(self) -> bool:
        """They lie nowhere yet."""
        return self.kind == DataKind.GENERATED

    @field_validator("kind")
    @classmethod
    def _is_there(cls, kind: str) -> str:
        if kind not in _KINDS and kind not in (added := plugin_names(PluginGroup.TASK_FORMATS)):
            known = [*_KINDS, *added]
            raise ValueError(
                f"data.kind = '{kind}' is no kind of tasks: there are {', '.join(known)}{did_you_mean(kind, known)}"
            )
        return kind

    @field_validator("task_ids", "held_out_ids", mode="before")
    @classmethod
    def _one_by_one(cls, listed: object) -> object:
        """A text has them with commas between."""
        return tuple(each.strip() for each in listed.split(",") if each.strip()) if isinstance(listed, str) else listed

    @model_validator(mode="after")
    def _has_tasks(self) -> Self:
        if self.generated:
            self._reads_nothing()
        elif self.path is None:
            raise ValueError(f"data.kind = '{self.kind}' needs a place: set data.path = '/where/the/tasks/are'")
        is_label = self.path is not None and self.path.name == DATASETS
        if self.label and self.kind != DataKind.DATASET:
            raise ValueError(
                f"data.label is a data set of a {DATASETS}, which says its format itself, and data.kind = "
                f"'{self.kind}': set data.kind = 'dataset', or remove data.label"
            )
        if is_label and not self.label:
            raise ValueError(f"data.path = '{self.path}' has data sets by label: set data.label to one of them")
        if self.label and self.root is not None:
            raise ValueError(f"data.root is said in {DATASETS} for the label '{self.label}': remove data.root")
        return self

    def _reads_nothing(self) -> None:
        """Raises ValueError for what a generated task has no use for."""
        for name in ("path", "label", "root", "task_ids", "held_out_ids"):
            if getattr(self, name):
                raise ValueError(
                    f"data.{name} is not read with data.kind = 'generated': set data.kind = 'dataset' and data.path, "
                    f"or remove data.{name}"
                )


class AgentSection(EpisodeSettings, HarnessSettings, AgentSettings):
    """The agent, the harness in its place, and an episode's limits, each as its room declares it."""


class RolloutSection(WorkerSettings, OutcomeSettings, SchedulerSettings):
    """Groups, admission, the outcome reward and the workers, each as its room declares it."""


class EvaluationSection(ConfigSection):
    tasks_per_family: CountInt = 8
    """Held-out tasks of each family, which occur neither in the warm start nor in training; 0 for no evaluation, unless
    ``data.held_out_ids`` names tasks."""
    attempts: PositiveInt = 3
    """Attempts at each task that are sampled at temperature 1: pass@1 is their mean."""
    greedy_attempts: CountInt = 1
    """Attempts that take the likeliest token."""
    before_training: bool = True
    """Evaluate before training too, and not only after it."""
    every_steps: CountInt = 0
    """Optimizer steps from one evaluation beside training to the next; 0 for none.  It is of the weights of one step,
    by an engine that is started for it and has, on GPUs, ``engine.tp`` of its own; with a shared device by the engine
    that there is, and the learner's next turn waits for its end.  Rollout goes on meanwhile (docs/evaluate.md)."""
    in_flight: PositiveInt = 4
    """Episodes at once of an evaluation beside training, in sandboxes beside those of training."""
