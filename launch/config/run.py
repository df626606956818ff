"""One run, whole: every section, and the checks that need more than one of them."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from actors.agents.settings import AgentKind, HistoryMode, ThinkingMode, ToolsetKind
from actors.engines.settings import EngineSettings, WeightTransferMode
from actors.rewards.settings import JudgeSettings, RewardSettings
from actors.rollout.settings import SamplingSettings
from actors.scheduler.admission import RolloutTuning
from launch.config.metrics import MetricsSection
from launch.config.policy import (
    CheckpointSection,
    ModelSection,
    WarmStartSection,
)
from launch.config.reward import check_reward_sections
from launch.config.rollout import (
    AgentSection,
    DataSection,
    EvaluationSection,
    RolloutSection,
)
from learner.losses.objective import Objective
from learner.losses.settings import CorrectionSettings, KlPenaltySettings, RewardShapingSettings
from learner.settings import LearnerSettings, LoraSettings, StalenessSettings
from protocol.errors import UserError
from protocol.run_directory.layout import DEFAULT_RUNS_FOLDER, RUN_ID_PATTERN
from protocol.settings import ConfigSection, CountInt, PositiveInt, Seconds
from protocol.staleness import AdmissionMode
from sandbox.pool.leases import MAX_GROUP
from sandbox.providers.settings import ENVIRONMENT, SandboxSettings

BYTES_PER_TOKEN = 13
"""int32 id, uint8 mask, float32 log-probability, int32 version: see :class:`protocol.trajectory.Segment`."""
TRAJECTORY_HEADER_BYTES = 16_384
"""Room for a trajectory's tests, timings and task."""
TURN_HEADER_BYTES = 400
"""For a turn and its observation: as much as those of two calls of the tool with the longest name, in a segment of
their own."""


_NAME_CHARS = 100
"""Most of them in ``run.name``: the start time and a number follow."""


def _checked_name(name: str) -> str:
    """``run.name``.  Raises ValueError where it cannot begin a folder's name."""
    if not RUN_ID_PATTERN.fullmatch(name) or len(name) > _NAME_CHARS:
        raise ValueError(
            f"run.name = {name!r} cannot begin the name of a run's folder: use at most {_NAME_CHARS} letters, "
            "digits, '.', '_' and '-', and begin with a letter or digit (--set run.name=NAME)"
        )
    return name


RunName = Annotated[str, AfterValidator(_checked_name)]


class NegativeControl(StrEnum):
    """A run that must not learn: what remains is luck."""

    NONE = "none"
    """A real run."""
    LR0 = "lr0"
    """Learning rate 0."""
    SHUFFLED = "shuffled"
    """Rewards shuffled within the batch, and no group chosen by its rewards."""


class RunSection(ConfigSection):
    name: RunName = "run"
    """First part of the default run id."""
    seed: CountInt = 0
    """Seed of tasks, model, warm start, cursor and sampling."""
    steps: PositiveInt = 24
    """Optimizer steps."""
    mode: AdmissionMode = AdmissionMode.ASYNC
    """When a ticket may be issued.  One code path; only the admission rule's lead differs."""
    negative_control: NegativeControl = NegativeControl.NONE
    """Turn the run into a control."""
    dir: Path = DEFAULT_RUNS_FOLDER
    """Folder of all runs, on a local disk."""
    disk_reserve_mb: PositiveInt = 512
    """Free space in ``dir`` below which no new group starts."""
    unresponsive_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """Buffer, conductor, worker or engine actor that has not answered for so long is killed and started again."""
    stall_timeout_s: Annotated[float, Field(ge=0)] = 600.0
    """Without any progress for so long, the stacks of all processes are written into the attempt's logs, with a line
    that says who waits for whom; nothing is ended for it.  0 for never."""


class BufferSection(ConfigSection):
    budget_bytes: PositiveInt = 1 << 30
    """Bytes of trajectories that the buffer holds, until a checkpoint covers them."""
    max_trajectory_bytes: PositiveInt = 256 * 1024
    """Largest trajectory; so much is reserved for each ticket."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Where trajectories arrive; 0 for a free port."""


class DevicePlacement(StrEnum):
    """Where the learner and the engines compute."""

    SEPARATE = "separate"
    """Each on a device of its own, all of them at the same time."""
    COLOCATED = "colocated"
    """On one device, in turns: rollout until a batch is there, a step, new weights, rollout again."""


class ClusterSection(ConfigSection):
    nodes: PositiveInt = 1
    """Ray nodes.  Without ``address`` they are simulated on this machine."""
    placement: DevicePlacement = DevicePlacement.SEPARATE
    """``separate``, or ``colocated``: one GPU for learner and engine, each of which offloads its memory while the other
    computes.  Rollout stands still while the learner computes, and the run reports for how long."""
    address: str = ""
    """A Ray cluster to join, ``host:port``; empty to start one here."""
    node_wait_s: Seconds = 600.0
    """Longest wait for the cluster to have so many nodes alive."""
    max_nodes: CountInt = 0
    """Nodes that join later get agents as long as the run has fewer than so many; 0 for no more than ``nodes``: then
    one that joins takes the place of one that has died."""
    scratch_dir: Path = Path("/tmp/longshore")  # noqa: S108  a name for each run below it
    """Folder on machines other than the driver's, on a local disk: for copies of weights, and for what a run writes
    there until the driver has taken it."""

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, address: str) -> str:
        if address and not re.fullmatch(r"\S+:\d+", address):
            raise ValueError(f"cluster.address = {address!r} is not host:port: say for example --address 10.0.0.1:6379")
        return address


class MonitorSection(ConfigSection):
    enabled: bool = True
    """Serve the live page."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """The page's port on 127.0.0.1; 0 for a free one."""


class StopSection(ConfigSection):
    """End before ``run.steps``.  What a run has used counts over all its attempts."""

    after_steps: CountInt = 0
    """Stop after so many optimizer steps, where ``run.steps`` is what a schedule is made for; 0 for no limit."""
    after_tokens: CountInt = 0
    """Stop when the engines have sampled so many tokens during training; 0 for no limit."""
    after_trajectories: CountInt = 0
    """Stop when so many trajectories are acknowledged; 0 for no limit."""
    after_hours: Annotated[float, Field(ge=0)] = 0.0
    """Stop after so many hours of training; 0 for no limit."""
    after_s: Annotated[float, Field(ge=0)] = 0.0
    """The same in seconds; 0 for no limit."""
    after_epochs: CountInt = 0
    """Stop after the steps that so many passes over the training tasks fill, were no group dropped, the last tasks of a
    pass that fill no step left out; 0 for no limit."""
    parity_k3: Annotated[float, Field(ge=0)] = 0.0
    """Stop a run at whose beginning the learner's log-probabilities of what its own weights sampled differ from the
    engine's by a mean k3 of more than this, and say so where that comes later; 0 for 0.0001 in float32, and 0.001 where
    either computes in bfloat16."""
    parity_every_steps: CountInt = 10
    """Optimizer steps from one look for parity to the next, for which engines sample a few hundred tokens; the first is
    taken before an attempt's first step.  0 for none: then the first batch that has tokens of the learner's own weights
    has to do."""


class ProofSection(ConfigSection):
    """What ``--proof`` asks of the run beyond a difference that is no luck."""

    min_improvement: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Least rise of pass@1."""
    min_final_pass_at_1: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Least pass@1 at the end."""


class RunConfig(ConfigSection):
    run: RunSection = RunSection()
    model: ModelSection = ModelSection()
    warm_start: WarmStartSection = WarmStartSection()
    data: DataSection = DataSection()
    agent: AgentSection = AgentSection()
    rollout: RolloutSection = RolloutSection()
    reward: RewardSettings = RewardSettings()
    judge: JudgeSettings = JudgeSettings()
    sampling: SamplingSettings = SamplingSettings()
    engine: EngineSettings = EngineSettings()
    sandbox: SandboxSettings = SandboxSettings()
    buffer: BufferSection = BufferSection()
    learner: LearnerSettings = LearnerSettings()
    lora: LoraSettings = LoraSettings()
    shaping: RewardShapingSettings = RewardShapingSettings()
    correction: CorrectionSettings = CorrectionSettings()
    kl: KlPenaltySettings = KlPenaltySettings()
    staleness: StalenessSettings = StalenessSettings()
    checkpoint: CheckpointSection = CheckpointSection()
    evaluation: EvaluationSection = EvaluationSection()
    cluster: ClusterSection = ClusterSection()
    monitor: MonitorSection = MonitorSection()
    metrics: MetricsSection = MetricsSection()
    stop: StopSection = StopSection()
    proof: ProofSection = ProofSection()

    @property
    def learning_rate(self) -> float:
        """What the optimizer uses: 0 in the control that says so."""
        return 0.0 if self.run.negative_control is NegativeControl.LR0 else self.learner.lr

    @property
    def in_flight(self) -> int:
        """Most training episodes at once: what the engines are to hold."""
        return self.rollout.in_flight or self.engine.count * self.engine.max_running

    @property
    def publish_every(self) -> int:
        """Optimizer steps from one set of weights that the engines get to the next."""
        return self.run.mode.publish_every(self.learner.publish_every)

    @property
    def rollout_tuning(self) -> RolloutTuning:
        """The values of admission that may change during a run."""
        rollout = self.rollout
        return RolloutTuning(self.in_flight, rollout.max_staleness, rollout.slack, self.publish_every)

    @property
    def parity_limit(self) -> float:
        """How far serving and training may differ."""
        coarse = "bfloat16" in {self.engine.dtype, self.learner.dtype}
        return self.stop.parity_k3 or (1e-3 if coarse else 1e-4)

    @property
    def publish_adapters(self) -> bool:
        """Whether engines get adapters alone."""
        return self.engine.weights is WeightTransferMode.ADAPTERS

    @property
    def colocated(self) -> bool:
        """Whether learner and engines take turns."""
        return self.cluster.placement is DevicePlacement.COLOCATED

    @property
    def dynamic_sampling(self) -> bool:
        """Whether groups without variance are replaced.  Not where rewards are shuffled: to choose groups by their true
        rewards would tell the learner something, and a policy that has collapsed would never fill a batch."""
        return self.rollout.dynamic_sampling and self.run.negative_control is not NegativeControl.SHUFFLED

    def limited_to_epochs(self, count: int) -> Self:
        """The same, with no more steps than ``stop.after_epochs`` passes over ``count`` training tasks fill."""
        if not self.stop.after_epochs:
            return self
        steps = self.stop.after_epochs * max(1, count // self.rollout.groups_per_step)
        run = self.run.model_copy(update={"steps": min(self.run.steps, steps)})
        return self.model_copy(update={"run": run})

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Report every inconsistency at once."""
        problems = [
            *self._policy(),
            *self._agent(),
            *self._placement(),
            *self._evaluation(),
            *self._adapters(),
            *self._objective(),
            *check_reward_sections(self.rollout.reward, self.reward, self.judge, self.learner.advantage),
            *self._sizes(),
            *self._deadlines(),
        ]
        if problems:
            raise ValueError("; also: ".join(problems))
        return self

    def _policy(self) -> list[str]:
        found: list[str] = []
        if self.model.path is not None and self.warm_start.enabled and not self.warm_start.data:
            found.append(
                "warm_start's demonstrations are for the demo model and would spoil model.path: set "
                "warm_start.enabled = false, or name warm_start.data"
            )
        if self.run.mode is not AdmissionMode.SYNC and self.staleness.max_staleness < 1:
            found.append(
                f"run.mode = '{self.run.mode}' makes tokens at least one step old, and staleness.max_staleness "
                "= 0 forbids it: "
                "set staleness.max_staleness = 1 or run.mode = 'sync'"
            )
        if (steps := self.publish_every) > self.staleness.max_staleness >= 1:
            found.append(
                f"learner.publish_every = {steps} with staleness.max_staleness = {self.staleness.max_staleness} "
                "lets rollout stand still "
                f"before every push: set staleness.max_staleness = {steps} or learner.publish_every = "
                f"{self.staleness.max_staleness}"
            )
        if self.data.generated and self.data.training_tasks < self.rollout.groups_per_step:
            found.append(
                f"data.training_tasks = {self.data.training_tasks} does not fill one step of "
                f"rollout.groups_per_step = {self.rollout.groups_per_step} groups: raise data.training_tasks"
            )
        return found

    def _agent(self) -> list[str]:
        """What the agent is, against what the model is taught before and what runs in its place."""
        agent, found = self.agent, list[str]()
        try:
            agent.make_spec()
        except UserError as error:
            found.append(f"agent.prompt: {error}")
        usual = agent.kind == AgentKind.HERMES and agent.toolset is ToolsetKind.SHELL_ONLY and not agent.prompt
        own = usual and agent.thinking is ThinkingMode.TEMPLATE
        if agent.harness and not (own and agent.history is HistoryMode.WHOLE):
            found.append(
                "agent.harness brings an agent of its own, and agent.kind, toolset, prompt, thinking and history would "
                "not be read: leave them out, or agent.harness"
            )
        if agent.harness and not self.sandbox.uses_worker_pools:
            found.append(
                "agent.harness reaches the policy by a door in its sandbox's network on this machine, and "
                f"sandbox.provider = '{self.sandbox.provider}' has its sandboxes elsewhere: set sandbox.provider = "
                "'docker', or leave agent.harness out"
            )
        if self.sandbox.provider == ENVIRONMENT and agent.history is not HistoryMode.WHOLE:
            found.append(
                "sandbox.provider = 'environment' leaves a history to the messages that services send, and "
                f"agent.history = '{agent.history}' would not be read: set agent.history = 'whole', or another provider"
            )
        if self.sandbox.group_slots and self.rollout.group_size > MAX_GROUP:
            found.append(
                f"sandbox.group_slots asks for at most {MAX_GROUP} places at once, and rollout.group_size = "
                f"{self.rollout.group_size}: lower it, or leave sandbox.group_slots out"
            )
        if self.warm_start.enabled and not self.warm_start.data and not own:
            found.append(
                "warm_start's demonstrations are Hermes calls of one shell after agent.system_prompt, and agent.kind = "
                f"'{agent.kind}', agent.toolset = '{agent.toolset}', agent.prompt = '{agent.prompt}', agent.thinking = "
                f"'{agent.thinking}' is another agent: set warm_start.enabled = false, or name warm_start.data"
            )
        return found

    def _placement(self) -> list[str]:
        if not self.colocated:
            return []
        learner, engine, found = self.learner, self.engine, list[str]()
        if self.run.mode is not AdmissionMode.SYNC:
            found.append(
                f"cluster.placement = 'colocated' lets nothing run ahead, and run.mode = '{self.run.mode}' would: set "
                "run.mode = 'sync' or cluster.placement = 'separate'"
            )
        if learner.device != engine.device:
            found.append(
                f"cluster.placement = 'colocated' with learner.device = '{learner.device}' and engine.device = "
                f"'{engine.device}' would take turns on nothing: set both alike, or cluster.placement = 'separate'"
            )
        elif learner.device == "cuda" and (learner.ranks, engine.count, engine.tp) != (1, 1, 1):
            found.append(
                f"cluster.placement = 'colocated' is for one GPU, and learner.ranks = {learner.ranks}, engine.count = "
                f"{engine.count} and engine.tp = {engine.tp} ask for more: set each to 1, or cluster.placement = "
                "'separate'"
            )
        return found

    def _evaluation(self) -> list[str]:
        """Evaluations beside training: of weights that are published, with sandboxes of their own."""
        evaluation, every, found = self.evaluation, self.evaluation.every_steps, list[str]()
        if not every:
            return []
        if not evaluation.tasks_per_family and not self.data.held_out_ids:
            found.append(
                f"evaluation.every_steps = {every} with evaluation.tasks_per_family = 0 would evaluate nothing: set "
                "evaluation.tasks_per_family = 8, or evaluation.every_steps = 0"
            )
        needed = [("learner.publish_every", self.publish_every, "only those steps' weights are published")]
        if self.checkpoint.keep_best:
            why = "checkpoint.keep_best keeps one of the steps that have a checkpoint"
            needed.append(("checkpoint.every_steps", self.checkpoint.every_steps, why))
        for name, steps, why in needed:
            if every % steps:
                found.append(
                    f"evaluation.every_steps = {every} is no multiple of {name} = {steps}, and {why}: set "
                    f"evaluation.every_steps = {-(-every // steps) * steps}"
                )
        if not self.online_evaluation_slots:
            found.append(
                f"evaluation.every_steps = {every} needs sandboxes beside training's, and sandbox.capacity_per_node = "
                f"{self.sandbox.capacity_per_node} leaves none: raise it to "
                f"{self.sandbox.capacity_per_node + evaluation.in_flight}, or lower rollout.episodes_per_worker"
            )
        return found

    @property
    def online_evaluation_slots(self) -> int:
        """Episodes at once of an evaluation beside training; 0 where no sandbox is left for one."""
        room = self.sandbox.capacity_per_node - self.rollout.workers_per_node * self.rollout.episodes_per_worker
        return (
            max(0, min(self.evaluation.in_flight, room))
            if self.sandbox.uses_worker_pools
            else self.evaluation.in_flight
        )

    def _adapters(self) -> list[str]:
        found = self._adapters_alone() if self.publish_adapters else []
        if self.lora.enabled and self.warm_start.enabled:
            found.append(
                f"lora.rank = {self.lora.rank} leaves the model's weights as they are, and the warm start has to train "
                "them: set lora.rank = 0, or warm_start.enabled = false and model.path to a model that has been "
                "trained (python -m launch.sft, or runs/ID/weights/v…)"
            )
        return found

    def _adapters_alone(self) -> list[str]:
        if not self.lora.enabled:
            lacking = (
                "engine.weights = 'adapters' pushes what LoRA trains, and lora.rank = 0 trains all weights: set "
                "lora.rank = 16, say, or engine.weights = 'auto'"
            )
            return [lacking]
        found, targets = list[str](), set(self.lora.projections)
        for some, needed in (({"q_proj", "k_proj", "v_proj"}, {"q_proj", "v_proj"}), ({"up_proj"}, {"gate_proj"})):
            if targets & some and (lacking := sorted(needed - targets)):
                found.append(
                    f"engine.weights = 'adapters' with lora.targets = {list(self.lora.projections)} is more "
                    "than SGLang loads, "
                    f"which wants {' and '.join(lacking)} beside {' and '.join(sorted(targets & some))}: add it to "
                    "lora.targets, or set engine.weights = 'auto'"
                )
        if self.colocated:
            found.append(
                "engine.weights = 'adapters' leaves the model where it is, and cluster.placement = 'colocated' "
                "takes it "
                "from the engine in each turn: set engine.weights = 'auto' or cluster.placement = 'separate'"
            )
        return found

    @property
    def objective(self) -> Objective:
        """What the learner maximises.  Raises UserError where keys contradict each other."""
        return Objective(self.learner, self.shaping, self.correction, self.kl)

    def _objective(self) -> list[str]:
        try:
            shaping = self.objective.shaping
        except UserError as error:
            return [str(error)]
        found, begins = list[str](), shaping.overlong_tokens - shaping.overlong_buffer
        if shaping.overlong_tokens and begins >= self.agent.context_tokens:
            found.append(
                f"shaping.overlong_tokens − overlong_buffer = {begins} tokens is where the penalty begins, and an "
                f"episode has at most agent.context_tokens = {self.agent.context_tokens}: lower shaping.overlong_tokens"
            )
        return found

    def _sizes(self) -> list[str]:
        found: list[str] = []
        if self.engine.max_total_tokens < self.agent.context_tokens:
            found.append(
                f"engine.max_total_tokens = {self.engine.max_total_tokens} does not hold one episode of "
                f"agent.context_tokens = {self.agent.context_tokens}: raise engine.max_total_tokens"
            )
        learner = self.learner
        if learner.sequence_tokens < self.agent.context_tokens:
            needed = -(-self.agent.context_tokens // learner.cp)
            found.append(
                f"learner.micro_batch_tokens = {learner.micro_batch_tokens} × learner.cp = {learner.cp} does not hold "
                f"one episode of agent.context_tokens = {self.agent.context_tokens}: set learner.micro_batch_tokens = "
                f"{needed} or more, or raise learner.cp"
            )
        episodes = self.rollout.workers_per_node * self.rollout.episodes_per_worker
        if self.sandbox.uses_worker_pools and episodes > self.sandbox.capacity_per_node:
            found.append(
                f"{episodes} episodes a node (rollout.workers_per_node × episodes_per_worker) need as many containers, "
                f"and sandbox.capacity_per_node = {self.sandbox.capacity_per_node}: lower the one or raise the other"
            )
        if 0 < self.cluster.max_nodes < self.cluster.nodes:
            found.append(
                f"cluster.max_nodes = {self.cluster.max_nodes} is below cluster.nodes = {self.cluster.nodes}, with "
                f"which the run begins: set cluster.max_nodes = {self.cluster.nodes} or more, or 0"
            )
        if not self.cluster.scratch_dir.is_absolute():
            found.append(
                f"cluster.scratch_dir = '{self.cluster.scratch_dir}' is no path from /, and on each machine it would "
                "be below another folder: begin it with /"
            )
        if not self.cluster.address:
            try:
                self.rollout.episodes_per_worker_of(self.cluster.nodes)
            except UserError as error:
                found.append(str(error))
        agent = self.agent
        largest = agent.total_tokens * BYTES_PER_TOKEN + TRAJECTORY_HEADER_BYTES + agent.max_turns * TURN_HEADER_BYTES
        if self.buffer.max_trajectory_bytes < largest:
            fewer = "" if agent.history is HistoryMode.WHOLE else ", or lower agent.trajectory_tokens"
            found.append(
                f"buffer.max_trajectory_bytes = {self.buffer.max_trajectory_bytes} is too small for the "
                f"{agent.total_tokens} tokens and {agent.max_turns} turns that an episode may have: set it to "
                f"{largest} or more{fewer}"
            )
        step_bytes = self.rollout.episodes_per_step * self.buffer.max_trajectory_bytes
        if self.buffer.budget_bytes < 2 * step_bytes:
            found.append(
                f"buffer.budget_bytes = {self.buffer.budget_bytes} cannot hold two steps of "
                f"{self.rollout.episodes_per_step} trajectories: set it to {2 * step_bytes} or more, or lower "
                "buffer.max_trajectory_bytes"
            )
        return found

    def _deadlines(self) -> list[str]:
        """Deadlines nest: an outer one that could pass first would blame the wrong party."""
        rollout, engine, sandbox, agent = self.rollout, self.engine, self.sandbox, self.agent
        found: list[str] = []
        tools_s = agent.time_limit_s + sandbox.command_timeout_s  # a last command may begin just before the limit
        agent_s = agent.max_turns * engine.request_timeout_s + tools_s
        judge_s = self.judge.timeout_s if self.judge.enabled else 0.0
        others_s = rollout.acquire_timeout_s + sandbox.grade_timeout_s + judge_s + rollout.cleanup_timeout_s
        stages_s = agent_s + others_s
        if rollout.episode_deadline_s <= stages_s:
            found.append(
                f"rollout.episode_deadline_s = {rollout.episode_deadline_s:g} must exceed its stages, {stages_s:g} s "
                f"(acquire {rollout.acquire_timeout_s:g} + {agent.max_turns} replies × {engine.request_timeout_s:g} + "
                f"agent.time_limit_s {agent.time_limit_s:g} and a last command {sandbox.command_timeout_s:g} + grade "
                f"{sandbox.grade_timeout_s:g}{f' + judge {judge_s:g}' if judge_s else ''} + clean-up "
                f"{rollout.cleanup_timeout_s:g}): raise it to {stages_s + 30:g} or lower a stage"
            )
        attempts = rollout.replacement_limit + 1
        if attempts * rollout.episode_deadline_s <= engine.start_timeout_s:
            found.append(
                f"{attempts} attempts of rollout.episode_deadline_s = {rollout.episode_deadline_s:g} would be over "
                f"before a killed engine is back, after engine.start_timeout_s = {engine.start_timeout_s:g} s at most: "
                f"lower that, or raise rollout.episode_deadline_s to {engine.start_timeout_s / attempts + 30:g}"
            )
        if sandbox.max_s <= rollout.episode_deadline_s:
            found.append(
                f"sandbox.max_s = {sandbox.max_s:g} would end containers inside rollout.episode_deadline_s = "
                f"{rollout.episode_deadline_s:g}: raise it to {rollout.episode_deadline_s + 60:g}"
            )
        if sandbox.deadline_s >= sandbox.max_s:
            found.append(
                f"sandbox.deadline_s = {sandbox.deadline_s:g} is not below sandbox.max_s = {sandbox.max_s:g}: lower it"
            )
        for name, value in (("command", sandbox.command_timeout_s), ("grade", sandbox.grade_timeout_s)):
            if sandbox.deadline_s <= value:
                found.append(
                    f"sandbox.deadline_s = {sandbox.deadline_s:g} could end a container during "
                    f"sandbox.{name}_timeout_s = {value:g}: raise it to {value + 30:g}"
                )
        if sandbox.start_timeout_s > rollout.acquire_timeout_s:
            found.append(
                f"sandbox.start_timeout_s = {sandbox.start_timeout_s:g} is more than rollout.acquire_timeout_s = "
                f"{rollout.acquire_timeout_s:g}, which includes it: lower the one or raise the other"
            )
        return found
