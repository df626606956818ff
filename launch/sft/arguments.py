"""The command line of ``python -m launch.sft``.  Every option that has a key is an override of that key."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.config import OverlongAction, SftConfig, load_sft, resolve_sft
from launch.config.command_line import NEWEST_RUN, format_overrides, require_nonempty, run_to_resume
from launch.run_records.run_directory import (
    SUMMARY_FILE,
    RunDirectoryError,
    config_tables,
    find_run,
    list_runs,
    load_stored_sft_config,
    require_unchanged,
)
from protocol.cli.parser import CommandLineParser, require_utf8
from protocol.errors import UserError

_OPTIONS = {
    "--model": "sft.model",
    "--data": "sft.data",
    "--eval-data": "sft.eval_data",
    "--output": "sft.output",
    "--adapters": "sft.adapters",
    "--min-score": "sft.min_score",
    "--reward-weighted": "sft.reward_weighted",
    "--too-long": "sft.overlong",
    "--epochs": "sft.epochs",
    "--batch-size": "sft.batch_size",
    "--lr": "learner.lr",
    "--seed": "run.seed",
}
"""Option → the key that it is an override of."""
_CHANGEABLE = (
    *("learner.ranks", "learner.tp", "learner.pp", "learner.cp", "learner.sequence_parallel", "learner.threads"),
    *("learner.device", "learner.micro_batch_tokens", "learner.recompute", "learner.offload", "learner.shard_mb"),
    *("learner.call_timeout_s", "run.dir", "run.disk_reserve_mb", "checkpoint.", "sft.output", "sft.adapters"),
)
"""What a run that goes on may do otherwise; a final dot means the whole section."""


@dataclass(frozen=True, slots=True)
class SftArguments:
    recipe: Path | None
    overrides: tuple[str, ...]
    """``section.key=value``, in the order given; the last one counts."""
    run_id: str | None
    resume: str | None
    """Run to go on with, ``NEWEST`` for the newest one, None for a new run."""
    dry_run: bool

    def config(self) -> SftConfig:
        """Of a new run.  Raises ConfigError or RecipeError."""
        return load_sft(self.recipe, self.overrides)

    def resumed(self) -> tuple[Path, SftConfig]:
        """The run to go on with and its configuration.  Raises RunDirectoryError."""
        where = [each for each in self.overrides if each.partition("=")[0].strip() == "run.dir"]
        parent = load_sft(self.recipe, where).run.dir
        path = find_run(parent, self.resume) if self.resume else _newest(parent)
        return path, resumed_config(path, self.overrides)


def resumed_config(run_dir: Path, overrides: Sequence[str]) -> SftConfig:
    """The stored configuration under new overrides.  Raises RunDirectoryError where its checkpoints do not allow it."""
    before = load_stored_sft_config(run_dir)
    after = resolve_sft(config_tables(before), overrides, source=f"run {run_dir.name}")
    require_unchanged(run_dir, before, after, lambda key: not key.startswith(_CHANGEABLE))
    exported, asked = ((each.sft.output, each.sft.adapters) for each in (before, after))
    if exported == asked and (run_dir / SUMMARY_FILE).exists():
        raise RunDirectoryError(
            f"run {run_dir.name} has come to its end, and {run_dir / SUMMARY_FILE} says to which: to train further, "
            "start from its model (--model); to have that elsewhere, give another --output"
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


def build_parser() -> CommandLineParser:
    made = CommandLineParser(
        prog="python -m launch.sft",
        description="Train a model on conversations and on what agents did in runs: supervised fine-tuning.",
        epilog="Example: python -m launch.sft --model /models/qwen3 --data good.jsonl runs/demo-1 --min-score 1",
    )
    add = made.add_argument
    add("--recipe", type=Path, metavar="PATH", help="TOML file: [run], [sft], [learner], [lora], [checkpoint]")
    add("--model", metavar="FOLDER", help="Hugging Face folder of a dense Qwen2.5 or Qwen3 with its tokenizer")
    add("--data", nargs="+", action="extend", metavar="PATH", help="conversations (.jsonl, .json) or runs (runs/ID)")
    add("--eval-data", nargs="+", action="extend", metavar="PATH", help="the same, held out: its loss is told")
    add("--output", metavar="FOLDER", help="where the trained model appears; default: model in the run's directory")
    add("--adapters", metavar="FOLDER", help="where the adapters of lora.rank appear alone too, as PEFT's folder")
    add("--min-score", type=float, metavar="X", help="train only what has a score or reward of at least X")
    add("--reward-weighted", action="store_true", default=None, help="a sequence's weight in the loss is its score")
    add("--too-long", choices=[each.value for each in OverlongAction], help="what becomes of sequences that do not fit")
    add("--epochs", type=int, metavar="N", help="times that each sequence is trained")
    add("--batch-size", type=int, metavar="N", help="sequences in an optimizer step")
    add("--lr", type=float, metavar="X", help="AdamW's learning rate after the warm-up")
    add("--seed", type=int, metavar="N", help="seed of the order in which sequences are trained")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key, learner.tp=2 for example")
    add("--run-id", metavar="ID", help="name of the run's directory; default: sft and start time")
    add(
        "--resume", nargs="?", const=NEWEST_RUN, metavar="ID", help="go on from the newest whole checkpoint of this run"
    )
    add("--json", action="store_true", help="print the summary as one JSON object on standard output")
    add("--dry-run", action="store_true", help="print the resolved configuration and stop")
    return made


def parse_arguments(argv: Sequence[str] | None = None) -> SftArguments:
    """Read a command line (``sys.argv`` by default).  Raises UserError."""
    words = sys.argv[1:] if argv is None else argv
    require_utf8(words)
    given = vars(build_parser().parse_args(words))
    values = {option: given[option.removeprefix("--").replace("-", "_")] for option in _OPTIONS}
    require_nonempty({**values, "--run-id": given["run_id"]})
    said = format_overrides({_OPTIONS[option]: value for option, value in values.items()})
    resume = run_to_resume(given["resume"], given["run_id"])
    return SftArguments(given["recipe"], (*said, *given["set"]), given["run_id"], resume, given["dry_run"])
