"""``longshore bench monitor``: measure the cost and the completeness of the live monitor.

A synthetic run of a hundred thousand trajectories is written (:mod:`.synthetic_run`) and opened
(:mod:`.opening_time`); a real run is watched (:mod:`.live_run`) by a client that is disconnected again and again
(:mod:`.event_client`).
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from launch.bench.kept_runs import OutputFolder, make_output_folder, require_empty_folder
from launch.bench.monitor.live_run import LiveMeasurement, measure_live
from launch.bench.monitor.opening_time import OpeningMeasurement, measure_opening
from launch.bench.monitor.synthetic_run import write_synthetic_run
from protocol.cli.arguments import AtLeastOne, CommandArguments, Count, JsonFlag, option
from protocol.cli.output import error_console
from protocol.events import JsonValue

OPEN_S, RSS_MB, P95_MS, SLOWDOWN = 2.0, 300.0, 1000.0, 0.02
"""The limits that the monitor has to meet."""


@dataclass(frozen=True, slots=True)
class MonitorBenchmarkOptions:
    trajectories: int
    opens: int
    steps: int
    cuts: int
    folder: Path | None
    """Folder that keeps the runs; None deletes them."""


@dataclass(frozen=True, slots=True)
class MonitorBenchmarkReport:
    trajectories: int
    opening: OpeningMeasurement
    live: LiveMeasurement

    @property
    def failures(self) -> Sequence[str]:
        """The goals that were missed, one line each."""
        live = self.live
        bounds = (
            ("seconds to open", self.opening.open_s, OPEN_S),
            ("MB resident", self.opening.rss_mb, RSS_MB),
            ("ms to an event, of 95 %", live.p95_ms, P95_MS),
            ("of the run's processor time", live.slowdown, SLOWDOWN),
            ("events missed", live.missed, 0),
            ("events seen twice", live.repeated, 0),
        )
        return [f"{found:.4g} {what}, and the bound is {most:g}" for what, found, most in bounds if found > most]

    @property
    def passed(self) -> bool:
        return not self.failures

    def as_json(self) -> dict[str, JsonValue]:
        opening, live = self.opening, self.live
        return {
            "open_s_100k": round(opening.open_s, 3),
            "rss_mb": round(opening.rss_mb, 1),
            "event_latency_ms": {"p50": round(live.p50_ms, 1), "p95": round(live.p95_ms, 1)},
            "missed_events": live.missed,
            "run_slowdown": round(live.slowdown, 5),
            "repeated_events": live.repeated,
            "trajectories": self.trajectories,
            "slowest_answer_s": round(opening.slowest_answer_s, 3),
            "events": live.events,
            "cuts": live.cuts,
            "cpu_s": {"monitor": round(live.monitor_cpu_s, 2), "run": round(live.run_cpu_s, 2)},
            "spread": {"open_s_100k": [round(each, 3) for each in opening.opens_s]},
            "failed": [*self.failures],
        }


class MonitorBenchmarkArguments(CommandArguments):
    """Measure the live monitor on a long recorded run and on a real one."""

    trajectories: Annotated[int, option("N"), Field(ge=100)] = 100_000
    """Trajectories of the recorded run."""
    opens: AtLeastOne = 3
    """Number of times to open it; the median is reported."""
    steps: AtLeastOne = 12
    """Steps of the real run."""
    cuts: Count = 50
    """Number of times to disconnect its client."""
    output: OutputFolder = None
    as_json: JsonFlag = False


def parse_options(given: MonitorBenchmarkArguments) -> MonitorBenchmarkOptions:
    """Check the arguments.  Raises UserError."""
    return MonitorBenchmarkOptions(
        given.trajectories, given.opens, given.steps, given.cuts, require_empty_folder(given.output)
    )


async def measure_monitor(options: MonitorBenchmarkOptions) -> MonitorBenchmarkReport:
    """Run the benchmark.  Raises UserError if the machine cannot run it, InfraError if a process fails."""
    say = error_console().print
    output = make_output_folder(options.folder)
    say(f"runs: {output}")
    live = await measure_live(output, options.steps, options.cuts)
    say(f"{live.events} events, p95 {live.p95_ms:.0f} ms, {live.missed} missed; {100 * live.slowdown:.2f} % of the run")
    long = output / "long" / "run"
    count = await asyncio.to_thread(write_synthetic_run, long, options.trajectories)
    say(f"{count} trajectories are written")
    opening = await measure_opening(long, count, options.opens)
    report = MonitorBenchmarkReport(count, opening, live)
    for line in report.failures:
        say(f"failed: {line}")
    if report.passed and options.folder is None:
        shutil.rmtree(output)
    return report
