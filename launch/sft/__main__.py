"""``longshore sft …``: supervised training on conversations and on trajectories of runs.

The data is read and checked first.  Then the run's directory is opened and the learner's ranks are started, which
:mod:`launch.sft.trainer` drives.  Ctrl-C stops; ``--resume`` continues from the newest checkpoint.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import orjson
from rich.console import Console

from launch.config import SftConfig
from launch.config.toml_text import print_toml
from launch.hosts.ray_environment import resolve_ray_environment
from launch.processes.interruption import run_interruptible
from launch.processes.process_reaper import ProcessReaper
from launch.run_records.reproducibility import write_record
from launch.run_records.run_directory import RunDirectory
from launch.run_records.stored_config import config_tables
from launch.settings.checkpoint import RetentionSettings
from launch.sft.arguments import SftArguments
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput, display_path, error_console, output_console
from protocol.errors import InfraError
from protocol.events import JsonValue
from protocol.run_directory.layout import SUMMARY_FILE, RunDirectoryError, resume_command

if TYPE_CHECKING:  # it loads Ray
    from launch.sft.preparation import SftInputs

_DATA_FILE = "data.json"


def run(arguments: SftArguments, out: JsonOutput) -> None:
    """Train, or print the configuration if its data can be read.  Raises UserError."""
    path, config = (None, arguments.config()) if arguments.resume is None else arguments.find_resumed_run()
    if arguments.dry_run:
        if config.sft.data or config.sft.eval_data:
            from launch.data.sft_examples import check_sources

            check_sources([*config.sft.data, *config.sft.eval_data])
        print_toml(config_tables(config), out)
    else:
        out.set_result(_run(arguments, config, path))


def _run(arguments: SftArguments, config: SftConfig, path: Path | None) -> dict[str, JsonValue]:
    """Train; ``path`` is the run to resume."""
    os.environ.update(resolve_ray_environment(""))
    from launch.sft.exports import SftExport, check_exports
    from launch.sft.preparation import prepare_sft

    console = error_console()
    check_exports(config.sft, path)
    prepared = prepare_sft(config)
    run, run_id = config.run, arguments.run_id
    made = RunDirectory.create(run.dir, run.name, run_id, shared=run.shared) if path is None else None
    with made or RunDirectory.open(cast("Path", path)) as directory:
        directory.archive_results()
        write_record(directory, config)
        _require_same_data(directory, prepared)
        console.print(f"run directory: {display_path(directory.path)}")
        temporary = Path(tempfile.mkdtemp(prefix="ls-"))
        with ProcessReaper(secrets.token_hex(16), temporary):
            work = _train(config, directory, prepared, temporary, console)
            found = asyncio.run(run_interruptible(work, resume_command(directory.path, supervised=True)))
        summary: dict[str, JsonValue] = {"run": directory.run_id, **found}
        directory.write_json(SUMMARY_FILE, summary)
    result = output_console()
    for export in SftExport:
        if export in summary:
            result.print(f"{export}: {summary[export]}")
    result.print(f"summary: {display_path(directory.path / SUMMARY_FILE)}")
    return summary


def _require_same_data(directory: RunDirectory, prepared: SftInputs) -> None:
    """Raise RunDirectoryError if an earlier start of the run read other sequences."""
    from launch.sft.trainer import summarise_dataset

    file, digests = directory.path / _DATA_FILE, [prepared.training.digest(), prepared.held_out.digest()]
    if not file.exists():
        directory.write_json(_DATA_FILE, {"sha256": [*digests], **summarise_dataset(prepared.training)})
    elif orjson.loads(file.read_bytes())["sha256"] != digests:
        raise RunDirectoryError(
            f"the data of run {directory.run_id} has changed (see {file}): restore it, or start a new run without "
            "--resume"
        )


async def _train(
    config: SftConfig, directory: RunDirectory, prepared: SftInputs, temporary: Path, console: Console
) -> dict[str, JsonValue]:
    from launch.actor_group.learner_group import spawn_learner_group
    from launch.checkpoints.store import CheckpointStore
    from launch.hosts.cluster_nodes import start_local_nodes
    from launch.hosts.ray_log import redirect_ray_log
    from launch.sft.exports import SftExports
    from launch.sft.trainer import SftTrainer
    from learner.rank import LearnerRank
    from learner.spec import LearnerSpec

    def report_damage(aside: Path, why: str) -> None:
        console.print(f"skipped a damaged checkpoint, {display_path(aside)} ({why})")

    store = CheckpointStore(directory.path, RetentionSettings(keep=config.checkpoint.keep), report_damage)
    checkpoint = await asyncio.to_thread(store.newest_intact)
    count, left_out = len(prepared.training.examples), sum(prepared.training.exclusions.values())
    console.print(f"{count} sequences, {left_out} left out; starting the learner")
    try:
        with redirect_ray_log(directory.logs / "ray.log"):
            async with start_local_nodes(1, temporary) as nodes:
                spec = LearnerSpec(str(prepared.model), config.learner, config.lora, seed=config.run.seed)
                learners = spawn_learner_group(spec, directory, nodes[0])
                await learners.call(LearnerRank.setup)
                trainer = SftTrainer(
                    config=config,
                    inputs=prepared,
                    run_dir=directory.path,
                    start_number=directory.start_number,
                    exports=SftExports.from_config(config.sft, directory.path),
                    learners=learners,
                    store=store,
                    console=console,
                )
                return await trainer.run(checkpoint)
    except InfraError:
        console.print(f"to continue: {resume_command(directory.path, supervised=True)}")
        raise


COMMAND = Command("sft", SftArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
