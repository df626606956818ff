"""The command line of ``longshore sft``; options that have a configuration key override that key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Self

from pydantic import model_validator
from tyro.conf import Positional, UseAppendAction

from launch.config import SftConfig, load_sft, resolve_sft
from launch.config.command_line import config_key, key_overrides, require_nonempty, run_to_resume
from launch.run_records.run_lookup import find_run, list_runs
from launch.run_records.stored_config import config_tables, load_stored_sft_config, require_unchanged
from launch.settings.data import OverlongAction
from protocol.cli.arguments import (
    CommandArguments,
    Flag,
    JsonFlag,
    Overrides,
    one_of,
    option,
    optional_value,
    repeatable,
)
from protocol.errors import UserError
from protocol.run_directory.layout import SUMMARY_FILE, RunDirectoryError

_CHANGEABLE = (
    *("learner.ranks", "learner.tp", "learner.pp", "learner.cp", "learner.sequence_parallel", "learner.threads"),
    *("learner.device", "learner.micro_batch_tokens", "learner.recompute", "learner.offload", "learner.shard_mb"),
    *("learner.call_timeout_s", "run.dir", "run.disk_reserve_mb", "checkpoint.", "sft.output", "sft.adapters"),
)
"""Keys that may change on resume; a final dot means the whole section."""


DataPaths = UseAppendAction[Annotated[tuple[tuple[str, ...], ...], repeatable("PATH ...")]]
"""Paths: several after one option, or the option repeated."""


class SftArguments(CommandArguments):
    """Supervised fine-tuning on conversations and on trajectories of runs.

    Example: longshore sft --model /models/qwen3 --data good.jsonl runs/demo-1 --min-score 1
    """

    recipe: Positional[Annotated[Path | None, option("[RECIPE]")]] = None
    """A TOML file with [run], [sft], [learner], [lora] and [checkpoint]."""
    model: Annotated[str | None, option("FOLDER"), config_key("sft.model", SftConfig)] = None
    data: Annotated[DataPaths, config_key("sft.data", SftConfig)] = ()
    eval_data: Annotated[DataPaths, config_key("sft.eval_data", SftConfig)] = ()
    output: Annotated[str | None, option("FOLDER"), config_key("sft.output", SftConfig)] = None
    adapters: Annotated[str | None, option("FOLDER"), config_key("sft.adapters", SftConfig)] = None
    min_score: Annotated[float | None, option("X"), config_key("sft.min_score", SftConfig)] = None
    reward_weighted: Annotated[Flag, config_key("sft.reward_weighted", SftConfig)] = False
    overlong: Annotated[
        OverlongAction | None, one_of(OverlongAction), option(), config_key("sft.overlong", SftConfig)
    ] = None
    epochs: Annotated[int | None, option("N"), config_key("sft.epochs", SftConfig)] = None
    batch_size: Annotated[int | None, option("N"), config_key("sft.batch_size", SftConfig)] = None
    lr: Annotated[float | None, option("X"), config_key("learner.lr", SftConfig)] = None
    seed: Annotated[int | None, option("N"), config_key("run.seed", SftConfig)] = None
    overrides: Overrides = ()
    run_id: Annotated[str | None, option("ID")] = None
    """Run id, the name of its directory; default: sft and start time."""
    resume: Annotated[str | None, optional_value("RUN"), option()] = None
    """Resume this run, by id or directory, from its newest intact checkpoint; without RUN that of --run-id, else the
    newest run."""
    as_json: JsonFlag = False
    dry_run: Flag = False
    """Read the data, without a model, print the resolved configuration as TOML, which is itself a recipe, and exit."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise UserError for an empty option, or two runs to resume."""
        texts = {"--model": self.model, "--output": self.output, "--adapters": self.adapters, "--run-id": self.run_id}
        require_nonempty(texts | {"--data": [*chain(*self.data)], "--eval-data": [*chain(*self.eval_data)]})
        run_to_resume(self.resume, self.run_id)
        return self

    def config_overrides(self) -> tuple[str, ...]:
        """Return ``section.key=value`` for every option that is a key, in the order in which the last one counts."""
        return (*key_overrides(self), *self.overrides)

    @property
    def resumed_run(self) -> str | None:
        """The run to resume, an empty string for the newest one, None for a new run.  Raises UserError."""
        return run_to_resume(self.resume, self.run_id)

    def config(self) -> SftConfig:
        """Return the configuration of a new run.  Raises ConfigError or RecipeError."""
        return load_sft(self.recipe, self.config_overrides())

    def find_resumed_run(self) -> tuple[Path, SftConfig]:
        """Return the run to resume and its configuration.  Raises RunDirectoryError."""
        overrides, resumed = self.config_overrides(), self.resumed_run
        where = [each for each in overrides if each.partition("=")[0].strip() == "run.dir"]
        parent = load_sft(self.recipe, where).run.dir
        path = find_run(parent, resumed) if resumed else _newest(parent)
        return path, resumed_config(path, overrides)


def resumed_config(run_dir: Path, overrides: Sequence[str]) -> SftConfig:
    """Return the stored configuration with new overrides.

    Raises RunDirectoryError if the run's checkpoints do not allow them or it has ended."""
    before = load_stored_sft_config(run_dir)
    after = resolve_sft(config_tables(before), overrides, source=f"run {run_dir.name}")
    require_unchanged(run_dir, before, after, lambda key: not key.startswith(_CHANGEABLE))
    exported, wanted = ((each.sft.output, each.sft.adapters) for each in (before, after))
    if exported == wanted and (run_dir / SUMMARY_FILE).exists():
        raise RunDirectoryError(
            f"run {run_dir.name} has ended (see {run_dir / SUMMARY_FILE}): to train further, start from its "
            "model (--model); to write the model elsewhere, give another --output"
        )
    return after


def _newest(parent: Path) -> Path:
    for path in reversed(list_runs(parent)):
        try:
            load_stored_sft_config(path)
        except UserError:
            continue
        return path
    raise RunDirectoryError(f"no supervised training in {parent}: leave --resume out to start one")
