"""Where trajectories come from: data, agent, rollout, sampling, engines, sandboxes, evaluation."""

from __future__ import annotations

import json
import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from actors.agents.prompt import PromptTemplate, load_agent_prompt
from actors.agents.settings import AgentKind, AgentSettings, HistoryMode, ThinkingMode, ToolsetKind
from actors.rewards.settings import OutcomeSettings
from actors.scheduler.settings import CurriculumSettings, SchedulerSettings
from actors.workers.settings import WorkerSettings
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
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


_SYSTEM_PROMPT = "Use the shell."
_OWN_PROMPTS: dict[str, str] = {
    AgentKind.BASH: "bash-1",
    AgentKind.JSON: "json-1",
    AgentKind.KEYSTROKES: "keystrokes-1",
    AgentKind.CODE_INTERPRETER: "code_interpreter-1",
}
"""What an agent needs to be told of its form, where it is told nothing else."""


_LEAST_OBSERVATION = 32
"""Tokens: the mark of what is left out takes a third of them."""
_OWN_TOOLS: set[str] = {AgentKind.BASH, AgentKind.KEYSTROKES, AgentKind.CODE_INTERPRETER}


class AgentLoopSection(ConfigSection):
    kind: str = AgentKind.HERMES
    """What a reply's actions look like: ``hermes`` tool calls, one block of ``bash``, one ``json`` action,
    ``keystrokes`` for a terminal, ``code_interpreter`` calls, or the name of one that a package adds
    (docs/plugins.md)."""
    options: dict[str, str | int | float | bool] = Field(default_factory=dict[str, str | int | float | bool])
    """Keys of an agent that a package adds; those of our own have none."""
    system_prompt: str = _SYSTEM_PROMPT
    """First message of each episode, where ``prompt`` is empty; ``hermes`` alone reads it."""
    prompt: str = ""
    """The messages of the first prompt as a file: a name in actors/agents/prompts, which ends with its version, or the
    path of one of yours, ending in .txt.  Empty for ``system_prompt``, and for the kind's own file under others."""
    tools: bool = True
    """Say in the first prompt, as the model's chat template does, which tools there are and how to call them."""
    toolset: ToolsetKind = ToolsetKind.SHELL_ONLY
    """What it may call: ``shell_only``, SETA's six (``seta``) or OpenClaw's four (``openclaw``)."""
    thinking: ThinkingMode = ThinkingMode.TEMPLATE
    """Whether the model thinks before it acts: as its ``template`` has it, ``on`` or ``off`` by the template's argument
    ``enable_thinking``, or ``no_think`` for the word ``/no_think`` at the end of the system message."""
    done_text: str = "done"
    """What the agent answers, without a tool call, when it has finished."""
    harness: str = ""
    """Command of an agent of yours in the sandbox, which asks the policy by OpenAI's or Anthropic's API; empty for our
    own, with a shell.  What it finds in its environment: docs/gateway.md."""
    harness_port: Annotated[int, Field(ge=1024, le=65535)] = 3129
    """Port of the sandbox's loopback where a harness reaches the policy."""
    max_turns: PositiveInt = 4
    """Most replies of the model in one episode; using the last without saying done is ``turn_limit``."""
    max_malformed: PositiveInt = 2
    """Actions in a row that do not parse, after which the episode ends as ``malformed_limit``."""
    max_new_tokens: PositiveInt = 96
    """Most tokens of one reply."""
    context_tokens: PositiveInt = 768
    """Most tokens of one episode, prompt and observations included.  An observation that would fill it ends the
    episode as ``context_limit``, and is no part of it.  The model must have 6 positions more, which SGLang keeps for
    itself."""
    history: HistoryMode = HistoryMode.WHOLE
    """What a turn's prompt holds of the turns before: the ``whole`` of it as it was sampled, one sequence; or each turn
    ``individual``, with all messages as the chat template renders them anew (Qwen3's drops earlier thoughts); or
    ``dynamic``, which loses its middle too where prompt and reply would not fit ``context_tokens``."""
    history_head: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Of a dynamic history that has lost its middle, the share of its tokens that come from the beginning."""
    trajectory_tokens: CountInt = 0
    """Most tokens of all segments of an episode together, where its history is rendered anew; what prompts share counts
    once.  0 for ``max_turns`` × ``context_tokens``."""
    observation_chars: Annotated[int, Field(ge=80)] = 1000
    """Most characters of a command's output that the agent reads: its beginning and its end."""
    observation_tokens: CountInt = 0
    """Most tokens of what one call answers, after ``observation_chars``: the first and the last, with a mark between;
    0 for no limit of its own."""
    max_calls: CountInt = 0
    """Calls of one reply that are run, 0 for all; each of the others is told that it was not."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Sampling temperature in training.  Recorded log-probabilities are those at this temperature; evaluations
    sample at 1, or greedily."""
    time_limit_s: Seconds = 60.0
    """The agent's own time: sandbox-busy seconds, and sampled tokens at ``nominal_tokens_per_s``.  Waiting for engine,
    pool or grader never counts."""
    nominal_tokens_per_s: Annotated[float, Field(gt=0)] = 50.0
    """What a sampled token costs of the agent's time, however fast the engine is."""

    @property
    def prompt_file(self) -> str:
        """As ``prompt`` names one: that, or the kind's own; empty where ``system_prompt`` is read."""
        return self.prompt or _OWN_PROMPTS.get(self.kind, "")

    @property
    def settings(self) -> AgentSettings:
        """Raises UserError."""
        prompt = load_agent_prompt(self.prompt_file) if self.prompt_file else PromptTemplate(self.system_prompt)
        if self.thinking is ThinkingMode.NO_THINK:
            prompt = prompt.with_last_line("/no_think")
        return AgentSettings(
            kind=self.kind,
            prompt=prompt,
            toolset=self.toolset,
            offered=self.tools,
            thinking=self.thinking,
            options=self.options,
        )

    @property
    def total_tokens(self) -> int:
        """Of all segments of an episode together, at most."""
        if self.history is HistoryMode.WHOLE:
            return self.context_tokens
        return self.trajectory_tokens or self.max_turns * self.context_tokens

    @field_validator("kind")
    @classmethod
    def _is_there(cls, kind: str) -> str:
        if kind not in list(AgentKind) and kind not in (added := plugin_names(PluginGroup.AGENTS)):
            known = [*AgentKind, *added]
            raise ValueError(
                f"agent.kind = '{kind}' is no agent: there are {', '.join(known)}{did_you_mean(kind, known)}"
            )
        return kind

    @model_validator(mode="after")
    def _is_told_what_it_needs(self) -> Self:
        try:
            _ = self.settings
        except UserError as error:
            raise ValueError(f"agent.prompt: {error}") from error
        if self.system_prompt != _SYSTEM_PROMPT and not self.prompt and self.kind in _OWN_PROMPTS:
            raise ValueError(
                f"agent.system_prompt would not be read, as agent.kind = '{self.kind}' has to be told its form: put "
                f"yours into a file beside what actors/agents/prompts/{_OWN_PROMPTS[self.kind]}.txt says, and name it "
                "in agent.prompt"
            )
        if self.options and self.kind in list(AgentKind):
            raise ValueError(
                f"agent.options are for agents that packages add, and agent.kind = '{self.kind}' has none: remove "
                f"{', '.join(self.options)}"
            )
        if self.toolset is not ToolsetKind.SHELL_ONLY and self.kind in _OWN_TOOLS:
            raise ValueError(
                f"agent.toolset = '{self.toolset}' is for agents that call tools by their names, and agent.kind = "
                f"'{self.kind}' has its own: leave agent.toolset out, or set agent.kind = 'hermes'"
            )
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.max_new_tokens >= self.context_tokens:
            raise ValueError(
                f"agent.max_new_tokens = {self.max_new_tokens} leaves no room for a prompt in agent.context_tokens = "
                f"{self.context_tokens}: set agent.max_new_tokens below it, {self.context_tokens // 4} for example"
            )
        if self.trajectory_tokens and (
            self.history is HistoryMode.WHOLE or self.trajectory_tokens < self.context_tokens
        ):
            raise ValueError(
                f"agent.trajectory_tokens = {self.trajectory_tokens} is for histories that are rendered anew, and at "
                f"least agent.context_tokens = {self.context_tokens}: leave it out, or raise it and set agent.history"
            )
        if self.observation_tokens and not _LEAST_OBSERVATION <= self.observation_tokens < self.context_tokens:
            raise ValueError(
                f"agent.observation_tokens = {self.observation_tokens} is less than says anything, or all of "
                f"agent.context_tokens = {self.context_tokens}: set it between {_LEAST_OBSERVATION} and that, or to 0"
            )
        return self


class RolloutSection(WorkerSettings, OutcomeSettings, SchedulerSettings):
    """Groups, admission, the outcome reward and the workers, each as its room declares it."""


class SamplingSection(ConfigSection):
    """Options that other trainers have and that training refuses.

    The engine returns log softmax(logits ÷ T) over the whole vocabulary, before any of these; with one of them set, the
    recorded log-probability would not be that of the distribution that the token came from.
    """

    top_p: float = 1.0
    """Refused below 1."""
    top_k: int = -1
    """Refused unless −1."""
    min_p: float = 0.0
    """Refused unless 0."""
    frequency_penalty: float = 0.0
    """Refused unless 0."""
    presence_penalty: float = 0.0
    """Refused unless 0."""
    repetition_penalty: float = 1.0
    """Refused unless 1."""
    logit_bias: dict[str, float] = Field(default_factory=dict[str, float])
    """Refused unless empty."""
    grammar: str = ""
    """Refused unless empty."""

    @model_validator(mode="after")
    def _true_logprobs(self) -> Self:
        neutral = {
            name: field.get_default(call_default_factory=True) for name, field in type(self).model_fields.items()
        }
        wrong = [name for name, value in neutral.items() if getattr(self, name) != value]
        if wrong:
            keys = ", ".join(f"sampling.{name}" for name in wrong)
            mended = " ".join(f"--set {shlex.quote(f'sampling.{name}={json.dumps(neutral[name])}')}" for name in wrong)
            raise ValueError(
                f"{keys}: would falsify the recorded log-probabilities, which are taken before such options: leave "
                f"{'it' if len(wrong) == 1 else 'them'} out (agent.temperature may be changed), or run "
                f"`python -m launch.cluster --recipe NAME {mended}`"
            )
        return self


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
