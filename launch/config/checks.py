"""Checks of a run's tables against each other.  Each returns problems, with the remedy in the message.  Pure."""

from __future__ import annotations

import re

from actors.agents.settings import AgentKind, HistoryMode, ThinkingMode, ToolsetKind
from actors.harnesses.catalog import PUBLISHED_HARNESSES, require_temperature
from launch.config.reward_checks import check_reward_tables
from launch.config.tables import AgentTable, RunTables
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.staleness import AdmissionMode
from sandbox.pool.leases import MAX_GROUP
from sandbox.providers.settings import DAYTONA, DOCKER, ENVIRONMENT, POOL

BYTES_PER_TOKEN = 13
"""Bytes of one token: int32 id, uint8 mask, float32 log-probability, int32 version
(:class:`protocol.trajectory.Segment`)."""
TRAJECTORY_HEADER_BYTES = 16_384
"""Bytes for a trajectory's test results, timings and task."""
TURN_HEADER_BYTES = 400
"""Bytes for a turn and its observation: enough for two calls of the tool with the longest name, in a segment of their
own."""


def find_problems(tables: RunTables) -> list[str]:
    """Return one line for each inconsistency, with the change that resolves it."""
    return [
        *_check_policy(tables),
        *_check_agent(tables),
        *_check_published_harness(tables.agent),
        *_check_placement(tables),
        *_check_evaluation(tables),
        *_check_adapters(tables),
        *_check_objective(tables),
        *check_reward_tables(tables.rollout.reward, tables.reward, tables.judge, tables.learner.advantage),
        *_check_sizes(tables),
        *_check_deadlines(tables),
    ]


def _check_policy(tables: RunTables) -> list[str]:
    problems: list[str] = []
    if tables.model.path is not None and tables.warm_start.enabled and not tables.warm_start.data:
        problems.append(
            "warm_start's demonstrations are for the demo model and would spoil model.path: set "
            "warm_start.enabled = false, or name warm_start.data"
        )
    if tables.run.mode is not AdmissionMode.SYNC and tables.staleness.max_staleness < 1:
        problems.append(
            f"run.mode = '{tables.run.mode}' makes tokens at least one step old, and staleness.max_staleness "
            "= 0 forbids that: set staleness.max_staleness = 1 or run.mode = 'sync'"
        )
    if (steps := tables.publish_every) > tables.staleness.max_staleness >= 1:
        problems.append(
            f"learner.publish_every = {steps} with staleness.max_staleness = {tables.staleness.max_staleness} makes "
            f"rollout wait before every weight update: set staleness.max_staleness = {steps} or "
            f"learner.publish_every = {tables.staleness.max_staleness}"
        )
    if tables.data.generated and tables.data.training_tasks < tables.rollout.groups_per_step:
        problems.append(
            f"data.training_tasks = {tables.data.training_tasks} does not fill one step of "
            f"rollout.groups_per_step = {tables.rollout.groups_per_step} groups: raise data.training_tasks"
        )
    return problems


def _check_agent(tables: RunTables) -> list[str]:
    """Check the agent against the warm start, the harness and the sandboxes."""
    agent, problems = tables.agent, list[str]()
    try:
        agent.make_spec()
    except UserError as error:
        problems.append(f"agent.prompt: {error}")
    is_usual = agent.kind == AgentKind.HERMES and agent.toolset is ToolsetKind.SHELL_ONLY and not agent.prompt
    is_demonstrated = is_usual and agent.thinking is ThinkingMode.TEMPLATE
    if agent.harness and not (is_demonstrated and agent.history is HistoryMode.WHOLE):
        problems.append(
            "agent.harness brings an agent of its own, and agent.kind, toolset, prompt, thinking and history would "
            "not be read: leave them out, or agent.harness"
        )
    if agent.harness and tables.sandbox.provider not in {DOCKER, POOL, DAYTONA}:
        problems.append(
            "agent.harness reaches the policy on its sandbox's own loopback, but nobody listens there in sandboxes of "
            f"sandbox.provider = '{tables.sandbox.provider}': set sandbox.provider = 'docker', 'pool' or 'daytona', or "
            "leave agent.harness out"
        )
    if agent.toolset is ToolsetKind.BROWSER and not tables.sandbox.uses_worker_pools:
        problems.append(
            f"agent.toolset = 'browser' needs sandboxes of this machine, and sandbox.provider = "
            f"'{tables.sandbox.provider}' runs them elsewhere: set sandbox.provider = 'docker', or another toolset"
        )
    if tables.sandbox.provider == ENVIRONMENT and agent.history is not HistoryMode.WHOLE:
        problems.append(
            "sandbox.provider = 'environment' takes the history from the messages that services send, and "
            f"agent.history = '{agent.history}' would not be read: set agent.history = 'whole', or another provider"
        )
    if tables.sandbox.group_slots and tables.rollout.group_size > MAX_GROUP:
        problems.append(
            f"sandbox.group_slots reserves at most {MAX_GROUP} slots at once, and rollout.group_size = "
            f"{tables.rollout.group_size}: lower it, or leave sandbox.group_slots out"
        )
    if tables.warm_start.enabled and not tables.warm_start.data and not is_demonstrated:
        problems.append(
            "warm_start's demonstrations are Hermes calls of one shell after agent.system_prompt, and agent.kind = "
            f"'{agent.kind}', agent.toolset = '{agent.toolset}', agent.prompt = '{agent.prompt}', agent.thinking = "
            f"'{agent.thinking}' is another agent: set warm_start.enabled = false, or name warm_start.data"
        )
    return problems


def _check_published_harness(agent: AgentTable) -> list[str]:
    """Check the agent's limits against what a published harness sends."""
    name, problems = agent.harness, list[str]()
    if (harness := agent.published_harness) is None:
        if re.fullmatch(r"[\w-]+", name) and (near := did_you_mean(name, PUBLISHED_HARNESSES)):
            problems.append(
                f"agent.harness = '{name}' is no published harness{near}; for a program of the image with that name, "
                f"set agent.harness = 'exec {name}'"
            )
        return problems
    if agent.context_tokens < harness.prompt_tokens + agent.max_new_tokens:
        problems.append(
            f"agent.harness = '{name}' sends a prompt of about {harness.prompt_tokens} tokens, and "
            f"agent.context_tokens = {agent.context_tokens} has no room for it and a reply of agent.max_new_tokens = "
            f"{agent.max_new_tokens}: set agent.context_tokens = {harness.context_tokens} or more (--agent "
            f"{name} does, unless it is set)"
        )
    try:
        require_temperature(harness, agent.temperature)
    except UserError as error:
        problems.append(str(error))
    return problems


def _check_placement(tables: RunTables) -> list[str]:
    if not tables.colocated:
        return []
    learner, engine, problems = tables.learner, tables.engine, list[str]()
    if tables.run.mode is not AdmissionMode.SYNC:
        problems.append(
            f"cluster.placement = 'colocated' lets nothing run ahead, which run.mode = '{tables.run.mode}' needs: set "
            "run.mode = 'sync' or cluster.placement = 'separate'"
        )
    if learner.device != engine.device:
        problems.append(
            f"cluster.placement = 'colocated' with learner.device = '{learner.device}' and engine.device = "
            f"'{engine.device}' share no device: set both alike, or cluster.placement = 'separate'"
        )
    elif learner.device == "cuda" and (learner.ranks, engine.count, engine.tp) != (1, 1, 1):
        problems.append(
            f"cluster.placement = 'colocated' is for one GPU, and learner.ranks = {learner.ranks}, engine.count = "
            f"{engine.count} and engine.tp = {engine.tp} ask for more: set each to 1, or cluster.placement = "
            "'separate'"
        )
    return problems


def _check_evaluation(tables: RunTables) -> list[str]:
    """Check that online evaluations have published weights and sandboxes of their own."""
    evaluation, every, problems = tables.evaluation, tables.evaluation.every_steps, list[str]()
    if not every:
        return []
    if not evaluation.tasks_per_family and not tables.data.held_out_ids:
        problems.append(
            f"evaluation.every_steps = {every} with evaluation.tasks_per_family = 0 would evaluate nothing: set "
            "evaluation.tasks_per_family = 8, or evaluation.every_steps = 0"
        )
    needed = [("learner.publish_every", tables.publish_every, "only those steps' weights are published")]
    if tables.checkpoint.keep_best:
        why = "checkpoint.keep_best keeps one of the steps that have a checkpoint"
        needed.append(("checkpoint.every_steps", tables.checkpoint.every_steps, why))
    for name, steps, why in needed:
        if every % steps:
            problems.append(
                f"evaluation.every_steps = {every} is not a multiple of {name} = {steps}, and {why}: set "
                f"evaluation.every_steps = {-(-every // steps) * steps}"
            )
    if not tables.online_evaluation_slots:
        problems.append(
            f"evaluation.every_steps = {every} needs sandboxes of its own, and sandbox.capacity_per_node = "
            f"{tables.sandbox.capacity_per_node} leaves none: raise it to "
            f"{tables.sandbox.capacity_per_node + evaluation.in_flight}, or lower rollout.episodes_per_worker"
        )
    return problems


def _check_adapters(tables: RunTables) -> list[str]:
    problems = _check_adapter_transfer(tables) if tables.publish_adapters else []
    if (reference := tables.kl.reference) is not None and (tables.lora.enabled or tables.model.path is None):
        what = "adapters have their base model" if tables.lora.enabled else "the demo's model is made by the run"
        problems.append(f"kl.reference = '{reference}' is for all weights of model.path, and {what}: leave it out")
    if tables.lora.enabled and tables.warm_start.enabled:
        problems.append(
            f"lora.rank = {tables.lora.rank} freezes the model's weights, and the warm start has to train them: set "
            "lora.rank = 0, or warm_start.enabled = false and model.path to a model that has been "
            "trained (longshore sft, or runs/ID/weights/v…)"
        )
    return problems


def _check_adapter_transfer(tables: RunTables) -> list[str]:
    """Check that engines can be given only the adapters."""
    if not tables.lora.enabled:
        no_adapters = (
            "engine.weight_transfer = 'adapters' transfers LoRA adapters, and lora.rank = 0 trains all weights"
        )
        return [f"{no_adapters}: set lora.rank = 16, say, or engine.weight_transfer = 'auto'"]
    problems, targets = list[str](), set(tables.lora.projections)
    for some, needed in (({"q_proj", "k_proj", "v_proj"}, {"q_proj", "v_proj"}), ({"up_proj"}, {"gate_proj"})):
        if targets & some and (lacking := sorted(needed - targets)):
            problems.append(
                f"engine.weight_transfer = 'adapters' with lora.targets = {list(tables.lora.projections)} cannot be "
                f"loaded by SGLang, which wants {' and '.join(lacking)} beside "
                f"{' and '.join(sorted(targets & some))}: add it to lora.targets, or set engine.weight_transfer = "
                "'auto'"
            )
    if tables.colocated:
        problems.append(
            "engine.weight_transfer = 'adapters' keeps the model in the engine's memory, and cluster.placement = "
            "'colocated' offloads it at every step: set engine.weight_transfer = 'auto' or cluster.placement = "
            "'separate'"
        )
    return problems


def _check_objective(tables: RunTables) -> list[str]:
    try:
        shaping = tables.objective.shaping
    except UserError as error:
        return [str(error)]
    problems, begins = list[str](), shaping.overlong_tokens - shaping.overlong_buffer
    if shaping.overlong_tokens and begins >= tables.agent.context_tokens:
        problems.append(
            f"shaping.overlong_tokens − overlong_buffer = {begins} tokens is where the penalty begins, and an "
            f"episode has at most agent.context_tokens = {tables.agent.context_tokens}: lower shaping.overlong_tokens"
        )
    return problems


def _check_sizes(tables: RunTables) -> list[str]:
    problems: list[str] = []
    if tables.engine.max_total_tokens < tables.agent.context_tokens:
        problems.append(
            f"engine.max_total_tokens = {tables.engine.max_total_tokens} does not hold one episode of "
            f"agent.context_tokens = {tables.agent.context_tokens}: raise engine.max_total_tokens"
        )
    learner = tables.learner
    if learner.sequence_tokens < tables.agent.context_tokens:
        needed = -(-tables.agent.context_tokens // learner.cp)
        problems.append(
            f"learner.micro_batch_tokens = {learner.micro_batch_tokens} × learner.cp = {learner.cp} does not hold "
            f"one episode of agent.context_tokens = {tables.agent.context_tokens}: set learner.micro_batch_tokens = "
            f"{needed} or more, or raise learner.cp"
        )
    episodes = tables.rollout.workers_per_node * tables.rollout.episodes_per_worker
    if tables.sandbox.uses_worker_pools and episodes > tables.sandbox.capacity_per_node:
        problems.append(
            f"{episodes} episodes a node (rollout.workers_per_node × episodes_per_worker) need as many containers, "
            f"and sandbox.capacity_per_node = {tables.sandbox.capacity_per_node}: lower the one or raise the other"
        )
    if 0 < tables.cluster.max_nodes < tables.cluster.nodes:
        problems.append(
            f"cluster.max_nodes = {tables.cluster.max_nodes} is below cluster.nodes = {tables.cluster.nodes}, with "
            f"which the run begins: set cluster.max_nodes = {tables.cluster.nodes} or more, or 0"
        )
    if not tables.cluster.scratch_dir.is_absolute():
        problems.append(
            f"cluster.scratch_dir = '{tables.cluster.scratch_dir}' is a relative path, which would be another folder "
            "on each machine: begin it with /"
        )
    if not tables.cluster.address:
        try:
            tables.rollout.episodes_per_worker_of(tables.cluster.nodes)
        except UserError as error:
            problems.append(str(error))
    agent = tables.agent
    largest = agent.total_tokens * BYTES_PER_TOKEN + TRAJECTORY_HEADER_BYTES + agent.max_turns * TURN_HEADER_BYTES
    if tables.buffer.max_trajectory_bytes < largest:
        fewer = "" if agent.history is HistoryMode.WHOLE else ", or lower agent.trajectory_tokens"
        problems.append(
            f"buffer.max_trajectory_bytes = {tables.buffer.max_trajectory_bytes} is too small for the "
            f"{agent.total_tokens} tokens and {agent.max_turns} turns that an episode may have: set it to "
            f"{largest} or more{fewer}"
        )
    step_bytes = tables.rollout.episodes_per_step * tables.buffer.max_trajectory_bytes
    if tables.buffer.budget_bytes < 2 * step_bytes:
        problems.append(
            f"buffer.budget_bytes = {tables.buffer.budget_bytes} cannot hold two steps of "
            f"{tables.rollout.episodes_per_step} trajectories: set it to {2 * step_bytes} or more, or lower "
            "buffer.max_trajectory_bytes"
        )
    return problems


def _check_deadlines(tables: RunTables) -> list[str]:
    """Check that deadlines nest: an outer one that could pass first would blame the wrong component."""
    rollout, engine, sandbox, agent = tables.rollout, tables.engine, tables.sandbox, tables.agent
    problems: list[str] = []
    tools_s = agent.time_limit_s + sandbox.command_timeout_s  # a last command may begin just before the limit
    agent_s = agent.max_turns * engine.request_timeout_s + tools_s
    judge_s = tables.judge.timeout_s if tables.judge.enabled else 0.0
    others_s = rollout.acquire_timeout_s + sandbox.grade_timeout_s + judge_s + rollout.cleanup_timeout_s
    stages_s = agent_s + others_s
    if rollout.episode_deadline_s <= stages_s:
        problems.append(
            f"rollout.episode_deadline_s = {rollout.episode_deadline_s:g} must exceed its stages, {stages_s:g} s "
            f"(acquire {rollout.acquire_timeout_s:g} + {agent.max_turns} replies × {engine.request_timeout_s:g} + "
            f"agent.time_limit_s {agent.time_limit_s:g} and a last command {sandbox.command_timeout_s:g} + grade "
            f"{sandbox.grade_timeout_s:g}{f' + judge {judge_s:g}' if judge_s else ''} + clean-up "
            f"{rollout.cleanup_timeout_s:g}): raise it to {stages_s + 30:g} or lower a stage"
        )
    attempts = rollout.replacement_limit + 1
    if attempts * rollout.episode_deadline_s <= engine.start_timeout_s:
        problems.append(
            f"{attempts} attempts of rollout.episode_deadline_s = {rollout.episode_deadline_s:g} would be over "
            f"before a killed engine is back, after engine.start_timeout_s = {engine.start_timeout_s:g} s at most: "
            f"lower that, or raise rollout.episode_deadline_s to {engine.start_timeout_s / attempts + 30:g}"
        )
    if sandbox.max_lifetime_s <= rollout.episode_deadline_s:
        problems.append(
            f"sandbox.max_lifetime_s = {sandbox.max_lifetime_s:g} would end containers inside "
            f"rollout.episode_deadline_s = {rollout.episode_deadline_s:g}: "
            f"raise it to {rollout.episode_deadline_s + 60:g}"
        )
    if sandbox.heartbeat_timeout_s >= sandbox.max_lifetime_s:
        problems.append(
            f"sandbox.heartbeat_timeout_s = {sandbox.heartbeat_timeout_s:g} is not below "
            f"sandbox.max_lifetime_s = {sandbox.max_lifetime_s:g}: lower it"
        )
    for name, value in (("command", sandbox.command_timeout_s), ("grade", sandbox.grade_timeout_s)):
        if sandbox.heartbeat_timeout_s <= value:
            problems.append(
                f"sandbox.heartbeat_timeout_s = {sandbox.heartbeat_timeout_s:g} could end a container during "
                f"sandbox.{name}_timeout_s = {value:g}: raise it to {value + 30:g}"
            )
    if sandbox.start_timeout_s > rollout.acquire_timeout_s:
        problems.append(
            f"sandbox.start_timeout_s = {sandbox.start_timeout_s:g} is more than rollout.acquire_timeout_s = "
            f"{rollout.acquire_timeout_s:g}, which includes it: lower the one or raise the other"
        )
    return problems
