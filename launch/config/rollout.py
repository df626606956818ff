"""Where trajectories come from: data, agent, rollout, sampling, engines, sandboxes, evaluation."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from actors.agents.settings import AgentSettings
from actors.rewards.settings import OutcomeSettings
from actors.rollout.settings import EpisodeSettings, HarnessSettings
from actors.scheduler.settings import CurriculumSettings, SchedulerSettings
from actors.workers.settings import WorkerSettings
from protocol.cli.suggestions import did_you_mean
from protocol.plugins import PluginGroup, plugin_names
from protocol.settings import ConfigSection, CountInt, PositiveInt, Seconds
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


class WeightTransferMode(StrEnum):
    """How new weights come to where an engine reads them."""

    AUTO = "auto"
    """``full`` on the learner's machine, ``delta`` on others."""
    FULL = "full"
    """Each engine reads the folder that the learner wrote."""
    DELTA = "delta"
    """Each machine keeps a copy, made from what changed since the version before."""
    BROADCAST = "broadcast"
    """Each machine keeps a copy, which comes to all of them at once, whole, over gloo."""
    DIRECT = "direct"
    """No copy: broadcast into servers that stand still meanwhile.  One that starts anew reads the learner's folder."""
    ADAPTERS = "adapters"
    """Only what LoRA trains, loaded beside the model while the engines decode; to machines as under ``auto``."""


class EngineSection(ConfigSection):
    count: PositiveInt = 1
    """SGLang servers, spread over the nodes."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the servers run."""
    tp: PositiveInt = 1
    """GPUs that one server's model is split over (tensor parallelism)."""
    memory_share: Annotated[float, Field(gt=0, lt=1)] = 0.85
    """Of a GPU's memory, for weights and KV; what is left is for activations and CUDA graphs."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the server; float32 on a CPU is as fast, and its log-probabilities equal the learner's."""
    deterministic: bool = False
    """Draw each token by its episode's seed, so that the same weights give the same samples; slower, and on CUDA only.
    Without it evaluations share tasks and attempts, not the dice."""
    kv: Literal["fresh", "session"] = "fresh"
    """Which cached prefixes are reused after new weights: ``fresh``, none; ``session``, an episode's own, made by older
    weights, so that long histories are not prefilled again.  Its turns are marked ``mixed_prefix`` then."""
    pause: Literal["in_place", "retract"] = "in_place"
    """What replies do that are being sampled while an engine's weights are exchanged: ``in_place``, keep their KV;
    ``retract``, give it back and prefill it anew, for which SGLang's scheduler may run ahead of the device.
    ``python -m launch.bench engine`` measures both on your machine."""
    max_total_tokens: PositiveInt = 40_000
    """Tokens in one server's KV cache."""
    max_running: PositiveInt = 64
    """Requests that one server decodes together."""
    max_queued: CountInt = 0
    """Requests that may wait for one server; further ones are refused at once, and go to another engine or come again.
    0 for sixteen times ``engine.max_running``."""
    start_timeout_s: Seconds = 900.0
    """Longest wait for a server that lives to come up: half a minute on a quiet machine, minutes on a busy one."""
    stall_timeout_s: Seconds = 60.0
    """A server that sends no token for so long, and answers no probe, is started again.  A CPU can prefill a long
    history for minutes."""
    request_timeout_s: Seconds = 60.0
    """Longest wait for one reply, retries included."""
    weights: WeightTransferMode = WeightTransferMode.AUTO
    """How new weights come to an engine's machine: ``full``, ``delta``, ``broadcast``, ``direct``, or ``auto``.  Deltas
    are small where the learner's weights are bfloat16.  With ``lora.rank``, ``adapters`` publishes adapters alone: no
    engine pauses for them, and requests end under the adapter that they began with.  To decode under several at once
    is slower."""
    sender: Literal["cpu", "cuda"] = "cpu"
    """From where ``weights = "direct"`` broadcasts: the host's memory, by gloo, or a GPU of its own beside the
    learner's, by NCCL."""
    handover: Literal["files", "tensors"] = "files"
    """How a server gets weights that are on its machine: it reads their ``files``, or is given ``tensors`` in shared
    memory (CUDA IPC on GPUs), which need as much room there as the model.  Whole weights only, and not ``direct``."""
    max_adapters: Annotated[int, Field(ge=2)] = 4
    """Under ``weights = "adapters"``: versions that a server holds at once, the newest and those under which requests
    still run.  A push waits until there is a place."""
    update_timeout_s: Seconds = 60.0
    """Longest wait for a load of new weights.  One that began in time gets a minute more; then its server is started
    again."""
    update_loss: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Most of a decoding fleet's time that exchanges of weights may cost.  The engines' pauses are spread for it: by
    0.05 the last engine has new weights twenty pauses after the first one began.  1: each as soon as it can."""

    @model_validator(mode="after")
    def _can_draw_by_seed(self) -> Self:
        if self.deterministic and self.device != "cuda":
            raise ValueError(
                "engine.deterministic = true needs attention kernels that SGLang has on CUDA only: set engine.device = "
                "'cuda', or engine.deterministic = false"
            )
        return self

    @model_validator(mode="after")
    def _fits_the_way_of_its_weights(self) -> Self:
        if self.handover == "tensors" and self.weights in {WeightTransferMode.DIRECT, WeightTransferMode.ADAPTERS}:
            raise ValueError(
                f"engine.handover = 'tensors' is for whole weights on the engine's machine, and engine.weights = "
                f"'{self.weights}' brings none there: leave one of the two out"
            )
        if self.sender == "cuda" and (self.weights, self.device) != (WeightTransferMode.DIRECT, "cuda"):
            raise ValueError(
                "engine.sender = 'cuda' is a GPU that broadcasts into those of the engines: set engine.weights = "
                "'direct' and engine.device = 'cuda', or leave it out"
            )
        if self.kv == "session" and self.weights is WeightTransferMode.ADAPTERS:
            raise ValueError(
                "engine.kv = 'session' keeps nothing where each version is an adapter, whose prefixes are its own: "
                "leave it out"
            )
        return self

    @model_validator(mode="after")
    def _splits_over_gpus(self) -> Self:
        if self.tp > 1 and self.device != "cuda":
            raise ValueError(f"engine.tp = {self.tp} is for GPUs: set engine.device = 'cuda', or engine.tp = 1")
        return self


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
