"""``longshore cluster``: train a model with a recipe, from warm start to report.

The command reads its arguments, opens the run directory, starts the process reaper, which leaves nothing behind, and
hands over to :mod:`launch.run.driver`.  Ctrl-C stops cleanly; a second one at once.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from launch.config import RunConfig, recipe_names, resolve
from launch.config.command_line import DEFAULT_RECIPE
from launch.config.recipe_environment import describe_urls_source
from launch.config.toml_text import print_toml
from launch.hosts.ray_environment import resolve_ray_environment
from launch.processes.interruption import run_interruptible
from launch.processes.process_reaper import ProcessReaper
from launch.run.arguments import ClusterArguments
from launch.run.preflight import run_preflight_checks
from launch.run.proof import run_proof
from launch.run_records.reproducibility import base_image_id, write_record
from launch.run_records.run_directory import RunDirectory, require_new_run
from launch.run_records.run_lookup import find_newest_run, find_run
from launch.run_records.stored_config import config_tables, load_resumed_config
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, display_path, error_console
from protocol.events import JsonValue
from protocol.run_directory.layout import resume_command

if TYPE_CHECKING:  # it loads Ray
    from launch.run.run_classes import RunClasses


def run(arguments: ClusterArguments, out: JsonOutput) -> int:
    """Run, and return 0 if the run passed its own checks."""
    if arguments.is_default_recipe:
        others = ", ".join(name for name in recipe_names() if name != DEFAULT_RECIPE)
        error_console().print(f"no recipe named: running '{DEFAULT_RECIPE}' (others: {others})")
    if arguments.dry_run:
        config = _new_config(arguments) if arguments.resume is None else _resumed_run(arguments)[1]
        print_toml(config_tables(config), out)
        return EXIT_OK
    result = run_proof(arguments, run_once) if arguments.proof else run_once(arguments)
    out.set_result(result)
    return EXIT_OK if result["ok"] else EXIT_FAILED


def run_once(
    arguments: ClusterArguments, classes: RunClasses | None = None, *, token: str = ""
) -> dict[str, JsonValue]:
    """Execute one run from its arguments to its summary, with other ``classes`` than the defaults if given.  ``token``
    marks its processes; without one it is random."""
    directory, config = _open_run_directory(arguments)
    with directory:
        directory.archive_results()
        write_record(directory, config, base_image_id(config))
        console = error_console()
        console.print(f"run directory: {display_path(directory.path)}")
        from launch.run.driver import Driver
        from launch.run.run_classes import RunClasses

        temporary = Path(tempfile.mkdtemp(prefix="ls-"))
        cleanup = (sys.executable, "-m", "sandbox.host", "clean", directory.run_id)
        log = directory.process_log("driver", "node-0")
        with ProcessReaper(token or secrets.token_hex(16), temporary, cleanup), log.handler_installed():
            driver = Driver(config, directory, temporary, console, classes or RunClasses())
            work = driver.run(resume=arguments.resume is not None)
            summary = asyncio.run(run_interruptible(work, resume_command(directory.path)))
        driver.write_results(summary)
        return summary


def _open_run_directory(arguments: ClusterArguments) -> tuple[RunDirectory, RunConfig]:
    if arguments.resume is None:
        config = _new_config(arguments)
        _check_ready(config)
        run, run_id = config.run, arguments.new_run_id
        return RunDirectory.create(run.dir, run.name, run_id, shared=run.shared), config
    path, config = _resumed_run(arguments)
    directory = RunDirectory.open(path)
    try:
        _check_ready(config)
    except BaseException:
        directory.close()
        raise
    return directory, config


def _new_config(arguments: ClusterArguments) -> RunConfig:
    """Return the configuration of a new run whose id is free.  Raises UserError."""
    config, remarks = arguments.load_in_environment()
    for remark in remarks:
        error_console().print(f"remark: {remark}")
    if (name := arguments.new_run_id) is not None:
        require_new_run(config.run.dir, name)
    return config


def _check_ready(config: RunConfig) -> None:
    """Print the warnings about this machine.  Raises UserError for problems that can be found before anything starts,
    also of the cluster to join."""
    warnings = run_preflight_checks(config)
    os.environ.update(resolve_ray_environment(config.cluster.address, os.environ))
    for each in warnings:
        error_console().print(f"warning: {each.check}: {each}")


def _resumed_run(arguments: ClusterArguments) -> tuple[Path, RunConfig]:
    """Return the run to resume and its configuration; without a recipe, an override may name the folder of runs."""
    overrides, resumed = arguments.config_overrides(), arguments.resumed_run
    if arguments.recipe:
        run = arguments.load_config().run
    else:
        run = resolve({}, [each for each in overrides if each.partition("=")[0].strip() == "run.dir"]).run
    if resumed:
        path = find_run(run.dir, resumed)
    elif arguments.recipe:
        path = find_newest_run(run.dir, run.name, run.negative_control, overrides)
    else:
        path = find_newest_run(run.dir, "", None, overrides)
    config = load_resumed_config(path, overrides)
    if remark := describe_urls_source(config.sandbox, os.environ):
        error_console().print(f"remark: {remark}")
    return path, config


COMMAND = Command("cluster", ClusterArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
