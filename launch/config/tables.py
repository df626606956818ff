"""The tables of a run's configuration, each from the room that uses it, and the values that follow from several."""

from __future__ import annotations

from dataclasses import replace
from typing import Self, cast

from pydantic import model_validator

from actors.agents.settings import AgentSettings, ToolsetKind
from actors.buffer.settings import BufferSettings
from actors.engines.settings import EngineSettings, WeightTransferMode
from actors.rewards.settings import JudgeSettings, OutcomeSettings, RewardSettings
from actors.rollout.settings import REFUSED_SAMPLING_KEYS, EpisodeSettings, HarnessSettings, default_page_chars
from actors.scheduler.admission import RolloutTuning
from actors.scheduler.settings import SchedulerSettings
from actors.workers.settings import WorkerSettings
from launch.settings.checkpoint import CheckpointSettings
from launch.settings.cluster import ClusterSettings, DevicePlacement
from launch.settings.data import DataSettings, ModelSettings, WarmStartSettings
from launch.settings.evaluation import HeldOutEvaluationSettings
from launch.settings.metrics import MetricsSettings
from launch.settings.monitor import MonitorSettings
from launch.settings.parity import ParitySettings
from launch.settings.run import NegativeControl, ProofSettings, RunSettings
from launch.settings.stop import StopSettings
from learner.losses.objective import Objective
from learner.losses.settings import CorrectionSettings, KlPenaltySettings, RewardShapingSettings
from learner.settings import LearnerSettings, LoraSettings
from protocol.settings import ConfigSection
from protocol.staleness_settings import StalenessSettings
from sandbox.agent_programs import BROWSER_PROGRAMS, AgentPrograms
from sandbox.providers.settings import SandboxSettings


class AgentTable(EpisodeSettings, HarnessSettings, AgentSettings):
    """The agent or the harness in its place, and the limits of an episode."""

    @model_validator(mode="before")
    @classmethod
    def _set_page_length(cls, given: object) -> object:
        """Show an agent with a browser more of a page than another one of a command's output."""
        if not isinstance(given, dict):
            return given
        table = cast("dict[str, object]", given)
        if table.get("toolset") != ToolsetKind.BROWSER or "observation_chars" in table:
            return table
        return {**table, "observation_chars": default_page_chars(table.get("context_tokens"))}

    @property
    def agent_programs(self) -> AgentPrograms | None:
        """The folder that a pool mounts for the browser or the published harness, with its limits; None without."""
        return BROWSER_PROGRAMS if self.toolset is ToolsetKind.BROWSER else super().agent_programs


class RolloutTable(WorkerSettings, OutcomeSettings, SchedulerSettings):
    """Groups, admission, the outcome reward and the workers."""


class RunTables(ConfigSection):
    """All tables; :class:`~launch.config.run.RunConfig` adds the checks that need several of them."""

    refused_keys = REFUSED_SAMPLING_KEYS

    run: RunSettings = RunSettings()
    model: ModelSettings = ModelSettings()
    warm_start: WarmStartSettings = WarmStartSettings()
    data: DataSettings = DataSettings()
    agent: AgentTable = AgentTable()
    rollout: RolloutTable = RolloutTable()
    reward: RewardSettings = RewardSettings()
    judge: JudgeSettings = JudgeSettings()
    engine: EngineSettings = EngineSettings()
    sandbox: SandboxSettings = SandboxSettings()
    buffer: BufferSettings = BufferSettings()
    learner: LearnerSettings = LearnerSettings()
    lora: LoraSettings = LoraSettings()
    shaping: RewardShapingSettings = RewardShapingSettings()
    correction: CorrectionSettings = CorrectionSettings()
    kl: KlPenaltySettings = KlPenaltySettings()
    staleness: StalenessSettings = StalenessSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    evaluation: HeldOutEvaluationSettings = HeldOutEvaluationSettings()
    cluster: ClusterSettings = ClusterSettings()
    monitor: MonitorSettings = MonitorSettings()
    metrics: MetricsSettings = MetricsSettings()
    stop: StopSettings = StopSettings()
    parity: ParitySettings = ParitySettings()
    proof: ProofSettings = ProofSettings()

    @property
    def learning_rate(self) -> float:
        """Learning rate of the optimizer; 0 in the negative control ``lr0``."""
        return 0.0 if self.run.negative_control is NegativeControl.LR0 else self.learner.lr

    @property
    def in_flight(self) -> int:
        """Maximum number of concurrent training episodes."""
        return self.rollout.in_flight or self.engine.count * self.engine.max_running

    @property
    def publish_every(self) -> int:
        """Optimizer steps between two weight versions that the engines get."""
        return self.run.mode.publish_every(self.learner.publish_every)

    @property
    def rollout_tuning(self) -> RolloutTuning:
        """The values of admission that may change during a run."""
        return replace(self.rollout.tuning(publish_every=self.publish_every), in_flight=self.in_flight)

    @property
    def parity_limit(self) -> float:
        """Maximum mean k3 between serving and training log-probabilities."""
        is_coarse = "bfloat16" in {self.engine.dtype, self.learner.dtype}
        return self.parity.max_k3 or (1e-3 if is_coarse else 1e-4)

    @property
    def publish_adapters(self) -> bool:
        """Whether engines get only the LoRA adapters."""
        return self.engine.weight_transfer is WeightTransferMode.ADAPTERS

    @property
    def colocated(self) -> bool:
        """Whether learner and engines alternate on one device."""
        return self.cluster.placement is DevicePlacement.COLOCATED

    @property
    def dynamic_sampling(self) -> bool:
        """Whether groups without reward variance are replaced.

        Not with shuffled rewards: choosing groups by their true rewards would leak information to the learner, and a
        collapsed policy would never fill a batch."""
        return self.rollout.dynamic_sampling and self.run.negative_control is not NegativeControl.SHUFFLED

    @property
    def online_evaluation_slots(self) -> int:
        """Number of concurrent episodes of an online evaluation; 0 if no sandbox is left for one."""
        if not self.sandbox.uses_worker_pools:
            return self.evaluation.in_flight
        free = self.sandbox.capacity_per_node - self.rollout.workers_per_node * self.rollout.episodes_per_worker
        return max(0, min(self.evaluation.in_flight, free))

    @property
    def objective(self) -> Objective:
        """The objective that the learner maximises.  Raises UserError for keys that contradict each other."""
        return Objective(self.learner, self.shaping, self.correction, self.kl)

    def limited_to_epochs(self, tasks: int) -> Self:
        """Return the configuration with at most the steps that ``stop.after_epochs`` passes over ``tasks`` training
        tasks fill."""
        if not self.stop.after_epochs:
            return self
        steps = self.stop.after_epochs * max(1, tasks // self.rollout.groups_per_step)
        run = self.run.model_copy(update={"steps": min(self.run.steps, steps)})
        return self.model_copy(update={"run": run})
