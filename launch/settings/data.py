"""Settings of the model, its warm start and the tasks: ``[model]``, ``[warm_start]`` and ``[data]``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from actors.scheduler.settings import CurriculumSettings
from protocol.cli.suggestions import did_you_mean
from protocol.plugins import PluginGroup, plugin_names
from protocol.run_directory.run_arguments import RunFolder
from protocol.settings import CommaList, ConfigSection, CountInt, PositiveInt, Share
from sandbox.tasks.dataset_catalog import CATALOG_FILE
from sandbox.tasks.formats.registry import TaskFormat


class ModelSettings(ConfigSection):
    path: Path | None = None
    """Hugging Face folder of a dense Qwen2.5 or Qwen3 with its tokenizer; without it the demo model is built."""
    layers: PositiveInt = 2
    """Number of layers of the demo model."""
    hidden: PositiveInt = 160
    """Hidden size of the demo model."""
    intermediate: PositiveInt = 512
    """Inner size of the demo model's MLP."""
    heads: PositiveInt = 4
    """Number of attention heads of the demo model; each has key and value heads of its own."""
    head_dim: PositiveInt = 32
    """Size of one attention head of the demo model."""
    vocab_tokens: PositiveInt = 1024
    """Maximum size of the demo model's byte-level vocabulary; training its tokenizer may stop earlier."""
    rope_theta: Annotated[float, Field(gt=0)] = 10_000.0
    """Base of the demo model's rotary embedding."""


class OverlongAction(StrEnum):
    """Action on a sequence that is longer than the learner takes."""

    ERROR = "error"
    """Nothing is trained."""
    DROP = "drop"
    """It is left out and counted."""
    TRUNCATE = "truncate"
    """Its end is cut off, and it is counted."""


class SequenceSettings(ConfigSection):
    """Choice and order of the sequences of supervised data."""

    min_score: float | None = None
    """Minimum score of the sequences of ``data`` that are trained; without it all are."""
    reward_weighted: bool = False
    """Weight each sequence of ``data`` in the loss by its score, which may not be negative, times its own
    ``weight``."""
    epochs: PositiveInt = 1
    """Number of passes over ``data``."""
    batch_size: PositiveInt = 32
    """Sequences in one optimizer step."""
    overlong: OverlongAction = OverlongAction.ERROR
    """Action on a sequence of ``data`` that is longer than the learner takes: ``error``, ``drop`` or ``truncate``."""


class WarmStartSettings(SequenceSettings):
    """Supervised training before the first rollout: on scripted demonstrations, or on ``data``."""

    enabled: bool = True
    """Train the demo model on demonstrations first, or any model on ``data``; otherwise the model starts as it is."""
    data: tuple[RunFolder, ...] = ()
    """Conversations (``.jsonl``, ``.json``, ``.parquet``) and runs, by directory or id, to train on instead of the
    demonstrations, as ``longshore sft`` takes them; ``batch_size``, ``lr`` and ``warmup_steps`` apply, the phases do
    not."""
    copy_steps: CountInt = 200
    """Steps of the first phase: repeat a random string, with loss on its second half.  Without it the model does not
    learn to copy names into commands."""
    clean_steps: CountInt = 400
    """Steps of the second phase: correct demonstrations."""
    noisy_steps: CountInt = 200
    """Steps of the third phase: some demonstrations are corrupted, so that there is something left to learn from
    rewards."""
    noise: Share = 0.5
    """Share of corrupted demonstrations in the third phase, over all families."""
    noise_spread: Share = 0.0
    """Difference between the share of corrupted demonstrations of the noisiest family and ``noise``, and likewise of
    the cleanest family; the other families are spaced evenly between, in an order drawn from the seed."""
    copy_batch_size: PositiveInt = 64
    """Strings in one step of the first phase."""
    final_turn_every: PositiveInt = 8
    """Number of batches between two that include the demonstrations' last turn, which declares the task done."""
    lr: Annotated[float, Field(gt=0)] = 4e-3
    """Peak learning rate, reached after ``warmup_steps`` and followed by a cosine decay to a twentieth; the other AdamW
    parameters are the learner's."""
    warmup_steps: CountInt = 30
    """Steps of linear warm-up."""

    @model_validator(mode="after")
    def _spread(self) -> Self:
        if self.noise_spread > min(self.noise, 1 - self.noise):
            raise ValueError(
                f"warm_start.noise_spread = {self.noise_spread} moves some families' noise out of 0 to 1: with noise = "
                f"{self.noise} it is at most {min(self.noise, 1 - self.noise):g}"
            )
        return self

    @property
    def steps(self) -> int:
        """Number of steps on demonstrations."""
        return self.copy_steps + self.clean_steps + self.noisy_steps


class DataKind(StrEnum):
    GENERATED = "generated"
    """Terminal tasks generated from the seed, in Terminal-Bench's format."""
    TERMINAL_BENCH = "terminal_bench"
    """A folder of task folders in Terminal-Bench's format."""
    DATASET = "dataset"
    """Tasks at a path, in a format that is detected from the files; or a label of a ``datasets.toml``."""


_BUILTIN_KINDS: list[str] = [*DataKind, *(form for form in TaskFormat if form not in list(DataKind))]


class DataSettings(CurriculumSettings):
    kind: str = DataKind.GENERATED
    """Source of the tasks: ``generated`` from the seed, a ``dataset`` whose format is detected, or the name of a format
    with which ``path`` is read: ``terminal_bench``, ``harbor``, ``openclaw``, ``openclaw_messages``, ``miles``,
    ``swe_synth``, ``swe_bug``, ``liveweb``, ``code``, or one that a package adds (docs/plugins.md)."""
    path: Path | None = None
    """Folder of task folders, file of rows, or, with ``label``, a ``datasets.toml``; ``hf:ORG/NAME`` for a data set of
    the Hugging Face hub, with ``@REVISION`` and ``:FILES``, a glob, if others than its training files are wanted."""
    label: str = ""
    """Label of a data set in the ``datasets.toml`` at ``path``, with ``kind = "dataset"``."""
    root: Path | None = None
    """Folder that relative paths in rows start from; without it the folder of the rows."""
    task_ids: CommaList = ()
    """Tasks of ``data.path`` to use: ids, numbers that ids end with, ranges of them, and ``KEY=GLOB`` of what tasks say
    about themselves, for example ``101-110,fix-git,difficulty=easy``.  Empty for all."""
    held_out_ids: CommaList = ()
    """Tasks to hold out, named as in ``task_ids`` and whether or not that includes them; all others are trained.  Empty
    for a fifth, at most ``evaluation.tasks_per_family`` of each family."""
    training_tasks: PositiveInt = 480
    """Number of generated training tasks, over all families but the held-out one."""
    held_out_family: str = ""
    """Family that is used only in evaluation and reported separately; empty for none."""

    @property
    def generated(self) -> bool:
        """Whether the tasks are generated instead of read."""
        return self.kind == DataKind.GENERATED

    @field_validator("kind")
    @classmethod
    def _exists(cls, kind: str) -> str:
        if kind not in _BUILTIN_KINDS and kind not in (added := plugin_names(PluginGroup.TASK_FORMATS)):
            known = [*_BUILTIN_KINDS, *added]
            raise ValueError(
                f"data.kind = '{kind}' is not a kind of tasks: there are {', '.join(known)}{did_you_mean(kind, known)}"
            )
        return kind

    @model_validator(mode="after")
    def _has_tasks(self) -> Self:
        if self.generated:
            self._require_no_source()
        elif self.path is None:
            raise ValueError(f"data.kind = '{self.kind}' needs a path: set data.path = '/where/the/tasks/are'")
        is_catalog = self.path is not None and self.path.name == CATALOG_FILE
        if self.label and self.kind != DataKind.DATASET:
            raise ValueError(
                f"data.label names a data set of a {CATALOG_FILE}, which states its format itself, and data.kind = "
                f"'{self.kind}': set data.kind = 'dataset', or remove data.label"
            )
        if is_catalog and not self.label:
            raise ValueError(f"data.path = '{self.path}' lists data sets by label: set data.label to one of them")
        if self.label and self.root is not None:
            raise ValueError(f"data.root is set in {CATALOG_FILE} for the label '{self.label}': remove data.root")
        return self

    def _require_no_source(self) -> None:
        """Raise ValueError if a key is set that generated tasks do not use."""
        for name in ("path", "label", "root", "task_ids", "held_out_ids"):
            if getattr(self, name):
                raise ValueError(
                    f"data.{name} is not read with data.kind = 'generated': set data.kind = 'dataset' and data.path, "
                    f"or remove data.{name}"
                )
