"""The documents' values for each recipe, line by line, beside ours. The documents are outside the repository, in
``../shared/reference`` beside the checkout; ``quote`` is a piece of the named line, so that the tables can be checked
against the documents where these exist."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

REFERENCE = Path(__file__).resolve().parents[4] / "shared" / "reference"
CARD, SETA, TCR, ART, OPENCLAW = (
    "seeds/000_d29b3f609de7ab8d.txt",
    "seeds/001_6c8fc287f1aa00d3.txt",
    "seeds/002_1e68de4446b82b94.txt",
    "seeds/003_8e40270a2a8f80cc.txt",
    "seeds/004_edaba46d7245e68b.txt",
)
CODE = "seed_systems.md"
"""The document about their code."""

Value = str | int | float | bool | tuple[float, ...] | tuple[str, ...] | None


class Row(NamedTuple):
    document: str
    line: int
    quote: str
    """A piece of that line, with the figure."""
    key: str
    """Ours; "" where there is none."""
    value: Value
    """The document's value in the unit of our key."""
    ours: Value = None
    """Our value where it differs; needs ``why``."""
    why: str = ""
    """Needed where ours is another one, or no key at all."""

    @property
    def expected(self) -> Value:
        return self.ours if self.why else self.value


_BOTH_OF_ART = (
    Row(ART, 1, "Qwen3-4B", "model.path", "Qwen3-4B"),
    Row(ART, 7, "GRPO", "learner.advantage", "group"),
    Row(ART, 11, "Single GPU", "cluster.placement", "colocated"),
    Row(ART, 46, "best_checkpoint", "checkpoint.keep_best", True),
    Row(ART, 85, "64", "lora.rank", 64),
    Row(ART, 86, "5e-7", "learner.lr", 5e-7),
    Row(ART, 87, "4", "rollout.groups_per_step", 1),
    Row(ART, 88, "4", "rollout.groups_per_step", 1),
    Row(ART, 89, "16", "rollout.group_size", 16),
    Row(ART, 90, "0.7", "agent.temperature", 0.7),
    Row(ART, 91, "4096", "agent.max_new_tokens", 4096),
    Row(ART, 105, "+1.0", "rollout.reward", "art"),
    Row(ART, 121, "every 100 steps", "evaluation.every_steps", 100),
    Row(ART, 121, "every 100 steps", "checkpoint.every_steps", 100),
    Row(ART, 186, "gradient_checkpointing", "learner.recompute", "full"),
    Row(CODE, 288, "α64", "lora.alpha", 64.0),
    Row(CODE, 288, "max_model_len 32768", "agent.context_tokens", 32768),
    Row(CODE, 288, "save 500", "checkpoint.keep_every_steps", 500),
)
"""What the document says of SWE-SYNTH and of LIVEWEB alike."""
TABLES: dict[str, tuple[Row, ...]] = {
    "seta_qwen3_8b": (
        Row(CARD, 5, "Qwen/Qwen3-8B", "model.path", "Qwen/Qwen3-8B", "Qwen3-8B", "a folder: nothing is downloaded"),
        Row(CARD, 6, "GRPO", "learner.advantage", "group", "batch", "as its code trained it (seed_systems.md 3.2)"),
        Row(CARD, 7, "SETA-Synth", "data.path", "SETA-Synth", "seta-env", "the folders that are open to all"),
        Row(CARD, 7, "SETA-Synth", "data.kind", "dataset"),
        Row(CARD, 8, "pass_ratio_with_bonus", "rollout.reward", "pass_ratio_with_bonus"),
        Row(CARD, 8, "+0.5 bonus", "reward.bonus", 0.5),
        Row(CARD, 9, "32 768 tokens", "agent.context_tokens", 32768),
        Row(CARD, 10, "/no_think", "agent.thinking", "no_think"),
        Row(CARD, 12, "shell_exec, shell_view", "agent.toolset", "seta"),
        Row(CARD, 29, "1.70e-5", "learner.lr", 1.7e-5),
        Row(CARD, 30, "constant", "learner.lr_end", None),
        Row(CARD, 31, "β₁=0.9, β₂=0.999", "learner.betas", (0.9, 0.999)),
        Row(CARD, 32, "0.017", "learner.weight_decay", 0.017),
        Row(CARD, 33, "0.4", "learner.eps_low", 0.4),
        Row(CARD, 33, "0.4", "learner.eps_high", 0.4),
        Row(CARD, 34, "10.0", "shaping.scale", 10.0),
        Row(CARD, 35, "−0.5", "shaping.bias", -0.5),
        Row(CARD, 36, "0.0", "kl.coefficient", 0.0),
        Row(CARD, 37, "16", "rollout.group_size", 16),
        Row(CARD, 38, "40", "stop.after_epochs", 40),
        Row(CARD, 39, "4 rollout", "engine.count", 4),
        Row(CARD, 39, "2 trainer", "learner.ranks", 2, 4, "8 GPUs less 4, and `fsdp:c2t2` in its code"),
        Row(CODE, 274, "batch 8 tasks", "rollout.groups_per_step", 8),
        Row(CODE, 274, "warm-up 0.001", "learner.lr_warmup_steps", 2),
        Row(CODE, 274, "/1e-8", "learner.adam_eps", 1e-8),
        Row(CODE, 274, "grad clip 1.0", "learner.clip_grad", 1.0),
        Row(CODE, 274, "ppo_n_minibatches 1", "learner.minibatches", 1),
        Row(CODE, 274, "recompute_logprob, use_decoupled_loss", "correction.proximal", "recomputed", "none",
            "with one update a batch that ratio is 1, and ε would hold nothing"),
        Row(CODE, 274, "behav_imp_weight_cap 5.0", "correction.cap", 5.0),
        Row(CODE, 274, "max_head_offpolicyness 2", "staleness.max_staleness", 2),
        Row(CODE, 274, "×16 = 128 sandboxes", "sandbox.capacity_per_node", 128),
        Row(CODE, 274, "max_new_tokens 10240", "agent.max_new_tokens", 10240, 4096, "max_completion, which is less"),
        Row(CODE, 274, "max_completion 4096", "agent.max_new_tokens", 4096),
        Row(CODE, 274, "temperature 1.0", "agent.temperature", 1.0),
        Row(CODE, 274, "mem 0.8", "engine.mem_fraction_static", 0.8),
        Row(CODE, 274, "max_total_tokens 28672", "agent.context_tokens", 28672, 32768, "the card's, which is served"),
        Row(CODE, 274, "max_iteration 30", "agent.max_turns", 30),
        Row(CODE, 274, "_reset_env 300, _reset_agent 120", "rollout.acquire_timeout_s", 420.0),
        Row(CODE, 122, "wait ≤20 s", "sandbox.command_timeout_s", 20.0),
        Row(CODE, 142, ">1000 chars", "agent.observation_chars", 1000),
        Row(CODE, 150, "max_parse_error 3", "agent.max_malformed", 3),
        Row(CODE, 274, "agent_astep 900", "agent.time_limit_s", 900.0),
        Row(CODE, 274, "_evaluate 600", "sandbox.grade_timeout_s", 600.0),
        Row(CODE, 274, "50 steps", "checkpoint.every_steps", 50),
        Row(CODE, 186, "clip 20 by default", "shaping.clip", 20.0),
    ),
    "seta_miles_multinode": (
        Row(SETA, 31, "GRPO", "learner.advantage", "group"),
        Row(SETA, 31, "disaggregated", "cluster.placement", "separate"),
        Row(SETA, 31, "Daytona sandboxes", "sandbox.provider", "daytona", "docker", "one key away; Docker is built in"),
        Row(SETA, 33, "GLM-4.7-Flash", "model.path", "GLM-4.7-Flash", "Qwen3-32B", "the learner trains dense models"),
        Row(SETA, 34, "DeepSeek-V4-Flash", "model.path", "DeepSeek-V4-Flash-FP8", "Qwen3-32B", "the same"),
        Row(SETA, 38, "8-node Ray cluster", "cluster.nodes", 8),
        Row(SETA, 13, "seta-env-v2", "data.path", "seta-env-v2"),
        Row(SETA, 13, "seta-env-v2", "data.kind", "dataset"),
        Row(CODE, 291, "14 TP4 engines", "engine.count", 14),
        Row(CODE, 291, "14 TP4 engines", "engine.tp", 4),
        Row(CODE, 291, "1 node train", "learner.ranks", 8),
        Row(CODE, 291, "16 groups × 16", "rollout.groups_per_step", 16),
        Row(CODE, 291, "16 groups × 16", "rollout.group_size", 16),
        Row(CODE, 291, "30 groups", "rollout.in_flight", 480, 400, "as many episodes as there are sandboxes"),
        Row(CODE, 291, "MAX_SLOTS 400", "sandbox.capacity_per_node", 50),
        Row(CODE, 291, "staleness 4", "staleness.max_staleness", 4),
        Row(CODE, 291, "STD 1e-8", "rollout.dynamic_sampling", True),
        Row(CODE, 291, "MAX_ENV_FAILURES 1", "rollout.replacement_limit", 1, 3, "failed episodes are begun again"),
        Row(CODE, 291, "lr 1e-6", "learner.lr", 1e-6),
        Row(CODE, 291, "clip .2/.28", "learner.eps_low", 0.2),
        Row(CODE, 291, "clip .2/.28", "learner.eps_high", 0.28),
        Row(CODE, 291, "binary reward", "rollout.reward", "binary"),
        Row(CODE, 291, "60 turns", "agent.max_turns", 60),
        Row(CODE, 122, "wait ≤20 s", "sandbox.command_timeout_s", 20.0),
        Row(CODE, 291, "60k ctx", "agent.context_tokens", 61440, 40954, "all that Qwen3-32B's positions leave"),
    ),
    "grpo_tcr_qwen3_4b": (
        Row(TCR, 2, "Qwen3-4B-Instruct-2507", "", "", why="doc 29 is what this stage begins with"),
        Row(TCR, 9, "code_interpreter", "agent.kind", "code_interpreter"),
        Row(TCR, 21, "Epochs: 10, Max length: 32768", "", 10, why="launch.sft's: the command is in the recipe"),
        Row(TCR, 29, "qwen3-4b-ra-sft-merged-epoch3", "model.path", "qwen3-4b-ra-sft-merged-epoch3"),
        Row(TCR, 30, "GRPO", "learner.advantage", "group"),
        Row(TCR, 31, "2,560", "", 2560, why="prompt and response share agent.context_tokens"),
        Row(TCR, 32, "10,480", "agent.max_new_tokens", 10480),
        Row(TCR, 32, "10,480", "agent.context_tokens", 10480, 13040, "prompt and response share it"),
        Row(TCR, 33, "16", "agent.max_turns", 16),
        Row(TCR, 34, "1e-6", "learner.lr", 1e-6),
        Row(TCR, 35, "4", "rollout.groups_per_step", 4),
        Row(TCR, 36, "8", "rollout.group_size", 8),
        Row(TCR, 37, "1", "learner.minibatches", 4),
        Row(TCR, 38, "3", "stop.after_epochs", 3),
        Row(TCR, 39, "366", "run.steps", 366),
        Row(TCR, 40, "490", "data.kind", "dataset"),
        Row(TCR, 40, "490", "", 490, why="as many as data.path has"),
        Row(TCR, 41, "10", "evaluation.tasks_per_family", 10, 0, "data.held_out_ids says which ten"),
        Row(TCR, 42, "token-mean", "learner.aggregation", "token_mean"),
        Row(TCR, 43, "low=0.2", "learner.eps_low", 0.2),
        Row(TCR, 43, "high=0.28", "learner.eps_high", 0.28),
        Row(TCR, 44, "kl_coef=0.0", "kl.coefficient", 0.0),
        Row(TCR, 45, "buffer=3,000", "shaping.overlong_buffer", 3000),
        Row(TCR, 45, "factor=1.0", "shaping.overlong_factor", 1.0),
        Row(TCR, 32, "10,480", "shaping.overlong_tokens", 10480),
        Row(TCR, 46, "DAPO", "rollout.dynamic_sampling", True),
        Row(TCR, 47, "sync mode", "run.mode", "sync"),
        Row(TCR, 47, "TP=4", "engine.tp", 4),
        Row(TCR, 48, "4 (Ulysses)", "learner.cp", 4),
        Row(TCR, 49, "True (CPU)", "learner.offload", "parameters"),
        Row(TCR, 50, "0.3", "engine.mem_fraction_static", 0.3, 0.85, "learner and engine do not share its GPUs here"),
        Row(TCR, 51, "Hermes", "agent.kind", "hermes", "code_interpreter", "whose calls are Hermes calls"),
        Row(TCR, 52, "4x", "learner.ranks", 4),
        Row(TCR, 58, "TCR", "rollout.reward", "tcr"),
        Row(CODE, 169, "max_parallel_calls: 1", "agent.max_calls", 1),
        Row(CODE, 169, "30 s", "sandbox.command_timeout_s", 30.0),
        Row(CODE, 169, "max_tool_response_length: 256", "agent.observation_chars", 256, 2000, "a default never set"),
        Row(CODE, 286, "c 10", "learner.dual_clip", 10.0),
        Row(CODE, 286, "save 30", "checkpoint.every_steps", 30),
        Row(CODE, 286, "test 10", "evaluation.every_steps", 10, 0, "a server for it would want four GPUs more"),
    ),
    "art_terminal": (
        *_BOTH_OF_ART,
        Row(ART, 3, "SWE-SYNTH", "data.path", "swe-synth.jsonl"),
        Row(ART, 3, "SWE-SYNTH", "data.kind", "dataset"),
        Row(ART, 34, "--online-steps 2000", "run.steps", 2000),
        Row(ART, 40, "--online-steps 1000", "run.steps", 1000, 2000, "LIVEWEB's: art_liveweb"),
        Row(ART, 106, "0.5 × pass_rate", "rollout.reward", "art"),
        Row(ART, 113, "SFT warm-start", "warm_start.enabled", True, False, "launch.sft's: adapters alone train here"),
        Row(ART, 114, "~500 steps", "", 500, why="launch.sft's epochs"),
        Row(ART, 120, "~2000 steps", "run.steps", 2000),
        Row(ART, 133, "101-110", "data.held_out_ids", ("101-110",), (), "told with the data, whose ids these are"),
        Row(ART, 164, "```bash", "agent.kind", "bash"),
        Row(CODE, 168, "step_limit 100", "agent.max_turns", 100),
        Row(CODE, 168, "command timeout 300", "sandbox.command_timeout_s", 300.0),
    ),
    "art_liveweb": (
        *_BOTH_OF_ART,
        Row(ART, 3, "LIVEWEB", "data.path", "liveweb.jsonl"),
        Row(ART, 3, "LIVEWEB", "data.kind", "dataset"),
        Row(ART, 40, "--online-steps 1000", "run.steps", 1000),
        Row(CODE, 168, "exactly one ```json action", "agent.kind", "json"),
    ),
    "openclaw_terminal": (
        Row(OPENCLAW, 1, "GRPO", "learner.advantage", "group"),
        Row(OPENCLAW, 12, "seta_env", "data.kind", "dataset"),
        Row(OPENCLAW, 22, "train.jsonl", "data.path", "train.jsonl"),
        Row(OPENCLAW, 23, "WORKER_URLS", "sandbox.provider", "pool"),
        Row(OPENCLAW, 26, "qwen3_8b", "model.path", "Qwen3-8B"),
        Row(OPENCLAW, 27, "PRM_ENABLE=1", "judge.enabled", True, False, "optional there too"),
        Row(OPENCLAW, 28, "PRM_MODEL_PATH", "", "", why="whoever serves the judge knows"),
        Row(OPENCLAW, 29, "PRM_M=3", "judge.votes", 3),
        Row(OPENCLAW, 30, "PRM_STEP_COEF=1.0", "judge.coefficient", 1.0),
        Row(OPENCLAW, 31, "PRM_TEMPERATURE=0.0", "judge.temperature", 0.0),
        Row(OPENCLAW, 32, "PRM_MAX_NEW_TOKENS=4096", "judge.max_new_tokens", 4096),
        Row(OPENCLAW, 34, "PRM_SGLANG_URL", "judge.url", "", "", "said with judge.enabled"),
        Row(CODE, 154, "max_iteration default 10", "agent.max_turns", 10),
        Row(CODE, 154, "max_parse_errors 3", "agent.max_malformed", 3),
        Row(CODE, 153, "timeout=20.0", "sandbox.command_timeout_s", 20.0),
        Row(CODE, 33, "none in env", "agent.observation_chars", "", 16000, "a bound that its context would be anyway"),
        Row(CODE, 164, "head 30 %", "agent.history_head", 0.3),
        Row(CODE, 281, "TP4, SP, full recompute", "learner.tp", 4),
        Row(CODE, 281, "TP4, SP, full recompute", "learner.sequence_parallel", True),
        Row(CODE, 281, "TP4, SP, full recompute", "learner.recompute", "full"),
        Row(CODE, 281, "4 rollout (2 GPUs/engine", "engine.count", 2),
        Row(CODE, 281, "4 rollout (2 GPUs/engine", "engine.tp", 2),
        Row(CODE, 281, "mem 0.6", "engine.mem_fraction_static", 0.6),
        Row(CODE, 281, "rollout-batch 16 × n 8", "rollout.groups_per_step", 16),
        Row(CODE, 281, "rollout-batch 16 × n 8", "rollout.group_size", 8),
        Row(CODE, 281, "num-steps-per-rollout 2", "learner.minibatches", 2),
        Row(CODE, 281, "num-rollout 2000", "run.steps", 2000),
        Row(CODE, 281, "max-response 8192", "agent.max_new_tokens", 8192),
        Row(CODE, 281, "max-context 16384", "agent.context_tokens", 16384),
        Row(CODE, 281, "max-tokens-per-gpu 16384", "learner.micro_batch_tokens", 16384),
        Row(CODE, 281, "--dynamic_history", "agent.history", "dynamic"),
        Row(CODE, 281, "KL loss 0.01 k3", "kl.coefficient", 0.01),
        Row(CODE, 281, "KL loss 0.01 k3", "kl.estimator", "k3"),
        Row(CODE, 281, "Adam lr 1e-6 constant", "learner.lr", 1e-6),
        Row(CODE, 281, "wd 0.1", "learner.weight_decay", 0.1),
        Row(CODE, 281, ".9/.98", "learner.betas", (0.9, 0.98)),
        Row(CODE, 281, "CPU offload", "learner.offload", "optimizer"),
        Row(CODE, 281, "temp 1", "agent.temperature", 1.0),
        Row(CODE, 281, "save-interval 3", "checkpoint.every_steps", 3),
        Row(CODE, 282, "train_async = one step off", "run.mode", "one_step_off"),
        Row(CODE, 197, "2·accuracy − 1", "rollout.reward", "signed_pass_ratio"),
        Row(CODE, 198, "discount = 1.0", "reward.discount", 1.0),
    ),
}  # fmt: skip

STATED: dict[str, dict[str, range]] = {
    "seta_qwen3_8b": {CARD: range(29, 40)},
    "grpo_tcr_qwen3_4b": {TCR: range(29, 53)},
    "art_terminal": {ART: range(85, 92)},
    "art_liveweb": {ART: range(85, 92)},
    "openclaw_terminal": {OPENCLAW: range(27, 33)},
}
"""Lines of a document each of which states a hyper-parameter."""
