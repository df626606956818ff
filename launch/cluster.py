"""``python -m launch.cluster``: run a recipe from model to report.

The command reads its arguments, opens the run directory, sets the guardian that leaves nothing behind, and hands over
to :mod:`launch.run.driver`.  Ctrl-C stops cleanly; a second one at once.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from launch.checkpoints.store import CheckpointStore
from launch.config import RunConfig, recipe_names, resolve
from launch.hosts.ray_environment import resolve_ray_environment
from launch.processes.interruption import run_interruptible
from launch.processes.process_reaper import ProcessReaper
from launch.run.arguments import ClusterArguments, parse_arguments
from launch.run.preflight import run_preflight_checks
from launch.run.proof import run_proof
from launch.run_records.reproducibility import base_image_id, write_record
from launch.run_records.run_directory import (
    RunDirectory,
    config_tables,
    find_newest_run,
    find_run,
    load_resumed_config,
    require_new_run,
)
from protocol.cli.exit_codes import EXIT_OK, main_guard
from protocol.cli.output import JsonOutput, display_path, error_console
from protocol.events import JsonValue

if TYPE_CHECKING:  # it loads Ray
    from launch.actor_group.actor_classes import ActorClasses


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    return main_guard(lambda: _main(words))


def _main(words: Sequence[str]) -> int:
    with JsonOutput("--json" in words or "--dry-run" in words) as out:
        arguments = parse_arguments(words)
        if not arguments.chosen:
            others = ", ".join(name for name in recipe_names() if name != arguments.recipe)
            error_console().print(f"no recipe named: running '{arguments.recipe}' (--recipe selects another: {others})")
        if arguments.dry_run:
            config = _resumed_run(arguments)[1] if arguments.resume is not None else _new_config(arguments)
            out.set_result(cast("dict[str, JsonValue]", config_tables(config)))
            return EXIT_OK
        result = run_proof(arguments, run_once) if arguments.proof else run_once(arguments)
        out.set_result(result)
        return EXIT_OK if result["ok"] else 1


def run_once(
    arguments: ClusterArguments,
    *,
    actor_classes: ActorClasses | None = None,
    checkpoint_store: type[CheckpointStore] = CheckpointStore,
    token: str = "",
) -> dict[str, JsonValue]:
    """One run from its arguments to its summary.  Benches have a ``crew`` of their own, and :mod:`launch.bench.chaos`
    knows by which ``token`` its processes are found."""
    directory, config = _open_run_directory(arguments)
    with directory:
        directory.archive_results()
        write_record(directory, config, base_image_id(config))
        console = error_console()
        console.print(f"run directory: {display_path(directory.path)}")
        from launch.actor_group.actor_classes import DEFAULT_ACTOR_CLASSES
        from launch.run.driver import Driver

        temporary = Path(tempfile.mkdtemp(prefix="ls-"))
        sweep = (sys.executable, "-m", "sandbox.pool.sweep", directory.run_id)
        log = directory.log_place("driver", "node-0")
        with ProcessReaper(token or secrets.token_hex(16), temporary, sweep), log.handler_installed():
            driver = Driver(
                config,
                directory,
                temporary,
                console,
                actor_classes=actor_classes or DEFAULT_ACTOR_CLASSES,
                checkpoint_store=checkpoint_store,
            )
            work = driver.run(resume=arguments.resume is not None)
            summary = asyncio.run(run_interruptible(work, directory.resume_options))
        return driver.write_results(summary)


def _open_run_directory(arguments: ClusterArguments) -> tuple[RunDirectory, RunConfig]:
    if arguments.resume is None:
        config = _new_config(arguments)
        _check_ready(config)
        return RunDirectory.create(config.run.dir, config.run.name, arguments.run_id), config
    path, config = _resumed_run(arguments)
    directory = RunDirectory.open(path)
    try:
        _check_ready(config)
    except BaseException:
        directory.close()
        raise
    return directory, config


def _new_config(arguments: ClusterArguments) -> RunConfig:
    """The configuration of a run that can begin by its name.  Raises UserError."""
    config = arguments.load_config()
    if arguments.run_id is not None:
        require_new_run(config.run.dir, arguments.run_id)
    return config


def _check_ready(config: RunConfig) -> None:
    """What can be wrong before anything starts, the cluster to join included.  Raises UserError."""
    run_preflight_checks(config)
    os.environ.update(resolve_ray_environment(config.cluster.address, os.environ))


def _resumed_run(arguments: ClusterArguments) -> tuple[Path, RunConfig]:
    """The run to go on with, and its configuration; without a recipe only an override can say where the runs are."""
    if arguments.recipe:
        run = arguments.load_config().run
    else:
        run = resolve({}, [each for each in arguments.overrides if each.partition("=")[0].strip() == "run.dir"]).run
    if arguments.resume:
        path = find_run(run.dir, arguments.resume)
    elif arguments.recipe:
        path = find_newest_run(run.dir, run.name, run.negative_control, arguments.overrides)
    else:
        path = find_newest_run(run.dir, "", None, arguments.overrides)
    return path, load_resumed_config(path, arguments.overrides)


if __name__ == "__main__":
    sys.exit(main())
