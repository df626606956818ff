"""``longshore bench soak``: use one small run and the servers around it for a long time, and find what grows.

One run with an untrained model trains all the time (:mod:`.soaked_parts`), and its servers are used at a steady rate
(:mod:`.steady_use`).  Of every process that lives as long, memory, descriptors, threads and children are sampled
(:mod:`.sampler`), and so are the sandboxes on the engine; each curve is judged by its trend (:mod:`.growth`).  At the
end everything is stopped, and what is left behind is named.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from launch.bench.kept_runs import make_output_folder, require_empty_folder
from launch.bench.soak.curve_file import CurveFile
from launch.bench.soak.report import PAGE_FILE, SoakReport, report_of
from launch.bench.soak.sampler import ProcessSampler, SoakSampler, WorkSampler
from launch.bench.soak.soaked_parts import SoakedParts, running_parts
from launch.bench.soak.steady_use import SteadyUse, services_of
from launch.processes.background_tasks import background_services
from protocol.cli.arguments import CommandArguments, JsonFlag, option
from protocol.cli.output import error_console
from protocol.errors import UserError
from protocol.files.filesystem import replace_file
from sandbox.docker.engine import DockerEngine
from sandbox.docker.leaks import wait_until_removed
from sandbox.host_record import docker_url

_SAMPLES = 300
_LEAST_INTERVAL_S, _MOST_INTERVAL_S = 1.0, 60.0
_PROGRESS_S = 600.0
_REMOVAL_S = 120.0
FAILED_USES_FILE = "failed_uses.txt"


@dataclass(frozen=True, slots=True)
class SoakOptions:
    minutes: float
    folder: Path | None
    """Folder that keeps everything; None for a temporary one."""
    judged: Path | None
    """Folder of an earlier soak that is only judged again."""

    @property
    def interval_s(self) -> float:
        """Seconds between two samples."""
        return min(max(self.minutes * 60 / _SAMPLES, _LEAST_INTERVAL_S), _MOST_INTERVAL_S)


class SoakArguments(CommandArguments):
    """Use a small run and its servers for a long time, and find what grows.

    Of a process's memory, what it has allocated itself is judged: anonymous pages, resident or swapped out.
    """

    minutes: Annotated[float, option("M"), Field(ge=0.5, allow_inf_nan=False)] = 10.0
    """Minutes of use, from the moment the run trains; the first third is not judged."""
    output: Annotated[Path | None, option("FOLDER")] = None
    """Folder to keep the run, the samples and the page in; default: a temporary one."""
    judge: Annotated[Path | None, option("FOLDER")] = None
    """Only judge the samples of this --output, also of a soak that is under way or was cut short."""
    as_json: JsonFlag = False


def parse_options(given: SoakArguments) -> SoakOptions:
    """Check the arguments.  Raises UserError."""
    if given.judge is not None and given.output is not None:
        raise UserError("--judge starts nothing, so it has no --output: leave one of them out")
    return SoakOptions(given.minutes, require_empty_folder(given.output), given.judge)


async def measure_soak(options: SoakOptions) -> SoakReport:
    """Run the benchmark.  Raises UserError if the machine cannot run it, InfraError if a part ends early."""
    say = error_console().print
    if options.judged is None:
        output = make_output_folder(options.folder)
        say(f"samples: {output}; to judge them at any time: longshore bench soak --judge {output}")
        report = await _soak(options, output)
    else:
        output = options.judged
        report = await asyncio.to_thread(report_of, output, _read_failed_uses(output))
    for line in report.table():
        say(line)
    for growth in report.growing_of_ray:
        say(f"remark: Ray's own grows: {report.describe(growth)}")
    for line in report.failures:
        say(f"failed: {line}")
    say(f"curves: {output / PAGE_FILE}")
    if report.passed and options.judged is None and options.folder is None:
        shutil.rmtree(output)
    return report


async def _soak(options: SoakOptions, output: Path) -> SoakReport:
    use, curves = SteadyUse(), CurveFile(output)
    async with DockerEngine(docker_url()) as engine:
        async with running_parts(output) as parts:
            work = WorkSampler(parts.run_dir, parts.state_folders, lambda: use.counts)
            sampler = SoakSampler(ProcessSampler(parts.tokens), work, engine, parts.run_ids, curves)
            began, run_ids = time.monotonic(), parts.run_ids()
            addresses = services_of(
                use, router=parts.router_url, environment=parts.environment_url, monitor=parts.monitor_url
            )
            async with background_services(
                sampler.keep_sampling(began, options.interval_s), _tell(output, use), *addresses
            ):
                await asyncio.sleep(options.minutes * 60)
            _write_failed_uses(output, use)
        sampler = replace(sampler, run_ids=lambda: run_ids)
        left = await _find_left(sampler, parts)
    return await asyncio.to_thread(report_of, output, use.failures, left)


async def _tell(output: Path, use: SteadyUse) -> None:
    """Write what failed so far and the page of curves from time to time."""
    while True:
        await asyncio.sleep(_PROGRESS_S)
        _write_failed_uses(output, use)
        report = await asyncio.to_thread(report_of, output, use.failures)
        counts = ", ".join(f"{int(count)} {name}" for name, count in report.work.items())
        error_console().print(f"{report.seconds / 60:.0f} min: {counts}; {len(report.failures)} findings so far")


async def _find_left(sampler: SoakSampler, parts: SoakedParts) -> Sequence[str]:
    """Return what is left of the soak: containers, networks and volumes after a while, and processes."""
    left = await wait_until_removed(sampler.inventory, _REMOVAL_S)
    named = (("container", left.containers), ("network", left.networks), ("volume", left.volumes))
    pids = await asyncio.to_thread(parts.living)
    return [
        *(f"left behind: {kind} {each}" for kind, found in named for each in sorted(found)),
        *(f"left behind: process {pid}" for pid in pids),
    ]


def _write_failed_uses(output: Path, use: SteadyUse) -> None:
    replace_file(output / FAILED_USES_FILE, "".join(f"{line}\n" for line in use.failures).encode())


def _read_failed_uses(output: Path) -> Sequence[str]:
    path = output / FAILED_USES_FILE
    return path.read_text().splitlines() if path.exists() else []
