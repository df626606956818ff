"""``longshore exporters RUN …``: send a run's metrics to Prometheus, W&B, TensorBoard or trackio.

A run with ``metrics.prometheus`` or ``metrics.exporters`` starts this command with ``--follow``.  Without it, the
command sends what a run has written, for example after a tracker could not be reached.  With ``--follow`` or
``--prometheus`` one line on standard output names the exporters and the address once all are open.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Annotated, cast

from pydantic import Field
from tyro.conf import UseAppendAction

from launch.exporters.exporter_registry import open_exporter
from launch.exporters.exporter_thread import POLL_INTERVAL_S, ExporterThread
from launch.exporters.metric_exporter import ExporterSettings
from launch.exporters.prometheus import PrometheusServer
from launch.exporters.step_metrics import STEP_FILES
from launch.run_records.stored_config import load_stored_tables
from launch.settings.metrics import BUILTIN_EXPORTERS, MetricsSettings
from protocol.cli.arguments import CommandArguments, Flag, JsonFlag, Text, option, repeatable
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, error_console, output_console
from protocol.errors import UserError
from protocol.events import EventLog, JsonValue
from protocol.run_directory.cursors import Cursor, cursor_at_end
from protocol.run_directory.layout import EVENT_FILES
from protocol.run_directory.run_arguments import RunPath

_STOP_TIMEOUT_S = 8.0
"""Seconds that exporters have to send the rest when the run ends."""
_NICE = 10


class ExportersArguments(CommandArguments):
    """Send a run's metrics to Prometheus, W&B, TensorBoard or trackio.

    Example: longshore exporters my-run --to wandb
    """

    run: RunPath
    to: UseAppendAction[
        Annotated[
            tuple[str, ...],
            repeatable("NAME"),
            Field(description=f"One of {', '.join(BUILTIN_EXPORTERS)}, or a plug-in's name."),
        ]
    ] = ()
    prometheus: Annotated[int | None, option("PORT"), Field(ge=0, le=65535)] = None
    """Serve the metrics on this port of 127.0.0.1; 0 for a free one."""
    project: Text = MetricsSettings().project
    """Project name in W&B and trackio."""
    follow: Flag = False
    """Follow the run: send only new metrics, until interrupted."""
    as_json: JsonFlag = False


def run(given: ExportersArguments, out: JsonOutput) -> int:
    """Send what is there, or follow the run until this is ended."""
    with _own_stdout() as announce:
        if not given.to and given.prometheus is None:
            raise UserError("no exporter is selected: pass --to wandb, for example, or --prometheus PORT")
        if given.follow:
            os.nice(_NICE)  # the run's own processes come first, also on a machine of two cores
        settings = _settings(given.run, given.project)
        begin = cursor_at_end(given.run, (*EVENT_FILES, *STEP_FILES)) if given.follow else {}
        endpoint = None
        if given.prometheus is not None:
            endpoint = PrometheusServer(settings.run_id, settings.run_dir, begin, given.prometheus)
        followers = _followers(given.to, settings, begin)
        if given.follow or endpoint is not None:
            names = " and ".join([*given.to, *([endpoint.url] if endpoint else [])])
            _follow(followers, endpoint, lambda: announce(names))
        else:
            for follower in followers:
                follower.send_all()
        result: dict[str, JsonValue] = {
            each.name: {"sent": each.sent_steps, "failed": each.failed_calls} for each in followers
        }
        out.set_result({"run": settings.run_id, "exporters": result})
    console = error_console() if given.follow else output_console()
    for each in followers:
        console.print(f"{each.name}: {each.sent_steps} steps sent, {each.failed_calls} calls failed")
    return EXIT_FAILED if any(each.failed_calls for each in followers) else EXIT_OK


@contextlib.contextmanager
def _own_stdout() -> Generator[Callable[[str], None]]:
    """Redirect what trackers print to standard error, so that standard output holds only our result."""
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield lambda line: _write(stdout, line)
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def _write(descriptor: int, line: str) -> None:
    os.write(descriptor, f"{line}\n".encode())


def _settings(run: Path, project: str) -> ExporterSettings:
    tables = load_stored_tables(run)
    config = {
        f"{table}.{key}": cast("JsonValue", value) for table, keys in tables.items() for key, value in keys.items()
    }
    return ExporterSettings(run.absolute().name, run.absolute(), project, config)


def _followers(names: Sequence[str], settings: ExporterSettings, begin: Cursor) -> list[ExporterThread]:
    """Open a thread for each exporter.  Raises UserError where one cannot be."""
    made: list[ExporterThread] = []
    for name in names:
        exporter = open_exporter(name, settings)
        made.append(
            ExporterThread(name, exporter, settings.run_dir, lambda why, name=name: _report(settings, name, why), begin)
        )
    return made


def _report(settings: ExporterSettings, name: str, why: str) -> None:
    """Report the first failure of an exporter as an alert."""
    log = EventLog(settings.run_dir, f"exporter-{name}", "node-0")
    text = (
        f"{name} failed to send a step ({why}): the run continues, and metrics.jsonl is complete; later failures are "
        f"only counted. To send them again: longshore exporters {settings.run_dir} --to {name}"
    )
    log.emit("alert.raised", name="metrics", text=text)
    log.close()


def _follow(
    followers: Sequence[ExporterThread], endpoint: PrometheusServer | None, announce: Callable[[], None]
) -> None:
    """Follow the run until this process is asked to end, possibly right after ``announce``, then give the exporters
    :data:`_STOP_TIMEOUT_S` to finish."""
    for follower in followers:
        follower.start()
    with contextlib.suppress(KeyboardInterrupt):  # of SIGTERM too
        announce()
        while True:
            time.sleep(POLL_INTERVAL_S)
            if endpoint is not None:
                endpoint.observe_new_events()
    for follower in followers:
        follower.request_stop()
    for follower in followers:
        follower.join(_STOP_TIMEOUT_S)
    if endpoint is not None:
        endpoint.close()


COMMAND = Command("exporters", ExportersArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
