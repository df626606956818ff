"""``python -m launch.cluster``: run a recipe from model to report.

The command reads its arguments, opens the run directory, sets the guardian that leaves nothing behind, and hands over
to :mod:`launch.run.driver`.  Ctrl-C stops cleanly; a second one at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, cast

from launch.config import RunConfig, recipe_names, resolve
from launch.hosts.ray_environment import resolve_ray_environment
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
from protocol.cli.exit_codes import EXIT_INTERRUPTED, EXIT_OK, main_guard
from protocol.cli.output import JsonOutput, display_path, error_console
from protocol.events import JsonValue

if TYPE_CHECKING:  # it loads Ray
    from launch.actor_group.actor_classes import ActorClasses

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
    arguments: ClusterArguments, *, actor_classes: ActorClasses | None = None, token: str = ""
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
            driver = Driver(config, directory, temporary, console, actor_classes=actor_classes or DEFAULT_ACTOR_CLASSES)
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
        path = find_newest_run(run.dir, run.name, run.control, arguments.overrides)
    else:
        path = find_newest_run(run.dir, "", None, arguments.overrides)
    return path, load_resumed_config(path, arguments.overrides)


async def run_interruptible(
    work: Coroutine[object, object, dict[str, JsonValue]], resume_options: str
) -> dict[str, JsonValue]:
    """Run ``work``; SIGINT or SIGTERM cancels it once, and ends the process at once when it comes again.

    Raises KeyboardInterrupt after an orderly stop.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # we are in it
    asked = False

    def stop() -> None:
        nonlocal asked
        asked = True
        for number in _STOP_SIGNALS:  # to the end of the process: also while it waits for a thread
            loop.remove_signal_handler(number)
            signal.signal(number, _stop_at_once)
        task.cancel()
        with contextlib.suppress(OSError):  # an interrupt ends who reads it too: `… 2>&1 | tee log`
            sys.stderr.write(f"\nstopping; once more to stop at once. To go on later: {resume_options}\n")

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        return await work
    except asyncio.CancelledError:
        if asked:
            raise KeyboardInterrupt from None
        raise
    finally:
        if not asked:
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)


def _stop_at_once(number: int, frame: FrameType | None) -> None:
    del number, frame
    JsonOutput.end_process(EXIT_INTERRUPTED, "interrupted")


if __name__ == "__main__":
    sys.exit(main())
