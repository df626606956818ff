"""``longshore simulate SCENARIO``: simulate the throughput and the staleness of training on a cluster.

A virtual clock drives the real scheduler, staleness, routing and journal rules; episodes, engines and steps only take
time.  A row takes seconds on one core, and the same seed gives the same bytes.  SCENARIO is a name, a TOML file, a
trace, or the directory of a real run, which is then replayed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field
from tyro.conf import Positional

from launch.simulate.run_trace import RunTrace, read_trace, write_trace
from launch.simulate.scenario import Scenario, SimulationMatrix, find_scenario, read_scenario, scenario_names
from launch.simulate.simulated_cluster import SimulationSettings
from launch.simulate.simulation_page import write_simulation
from launch.simulate.simulation_rows import SimulationRunner
from launch.simulate.simulation_table import table_lines
from protocol.cli.arguments import AtLeastOne, CommandArguments, Count, JsonFlag, comma_separated, option
from protocol.cli.command import Command, typed_command
from protocol.cli.output import JsonOutput, display_path, error_console, output_console
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.run_directory.layout import find_folder
from protocol.staleness import AdmissionMode, StaleTokenPolicy

_LARGEST = 100_000


class SimulateArguments(CommandArguments):
    """Simulate training on a cluster: the real scheduler, staleness, routing and journal rules on a virtual clock.

    Example: longshore simulate scale --max-staleness 1,2,4,8 --in-flight 768,1024,1536
    """

    scenario: Positional[
        Annotated[
            str,
            option("SCENARIO"),
            Field(description=f"One of {', '.join(scenario_names())}, a TOML file or a run."),
        ]
    ]
    nodes: Annotated[tuple[int, ...] | None, comma_separated("N,…"), option()] = None
    """Nodes of the cluster."""
    mode: Annotated[tuple[AdmissionMode, ...] | None, comma_separated("MODE,…"), option()] = None
    """Admission modes: sync, one_step_off, async."""
    policy: Annotated[tuple[StaleTokenPolicy, ...] | None, comma_separated("POLICY,…"), option()] = None
    """Policies for tokens beyond the staleness bound."""
    max_staleness: Annotated[tuple[int, ...] | None, comma_separated("N,…"), option()] = None
    """Staleness bounds, in optimizer steps."""
    in_flight: Annotated[tuple[int, ...] | None, comma_separated("N,…"), option()] = None
    """Concurrent episodes over all nodes."""
    fault_rate: Annotated[float | None, option("RATE"), Field(ge=0, le=1)] = None
    """Share of the nodes that fail in an hour, for example 0.005."""
    seed: Count = 0
    """Seed of episodes and faults."""
    concurrency: AtLeastOne = 1
    """Concurrent simulations, each on its own core."""
    output: Annotated[Path | None, option("FOLDER")] = None
    """Folder of index.html and rows.json; default: simulations/SCENARIO."""
    write_trace: Annotated[Path | None, option("FILE")] = None
    """Also write the trace of a replayed run to this file."""
    as_json: JsonFlag = False


def run(given: SimulateArguments, out: JsonOutput) -> None:
    """Simulate every combination, print the rows and write the page."""
    console = output_console()
    scenario, trace = _scenario(find_scenario(str(find_folder(Path(given.scenario)))))
    if given.write_trace is not None:
        if trace is None:
            raise UserError("--write-trace needs a run to replay: give a run as SCENARIO")
        write_trace(trace, given.write_trace)
    if given.fault_rate is not None:
        scenario = _with_faults(scenario, given.fault_rate)
    matrix = _matrix(scenario, given)
    folder = _make_folder(given.output or Path("simulations") / scenario.name)

    def report_start(cell: SimulationSettings) -> None:
        error_console().print(f"simulating {cell.description}")

    rows = SimulationRunner(scenario, given.seed, trace).run_matrix(matrix, given.concurrency, report_start)
    for line in table_lines(rows):
        console.print(line)
    if trace is not None:
        measured = trace.measured
        console.print(
            f"measured in the run: {measured.trained_tokens_per_s:,.1f} trained tokens/s, mean staleness "
            f"{measured.staleness_mean:.3f}"
        )
    result: dict[str, JsonValue] = {"scenario": scenario.name, "rows": [row.as_json() for row in rows]}
    write_simulation(folder, scenario, rows, result, typed_command("simulate"))
    console.print(f"page: {display_path(folder / 'index.html')}")
    out.set_result(result)


def _make_folder(folder: Path) -> Path:
    """Make the folder before time is spent on what goes into it.  Raises UserError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}; name another one with --output") from error
    return folder


def _scenario(path: Path) -> tuple[Scenario, RunTrace | None]:
    if path.is_dir() or path.suffix == ".json":
        trace = read_trace(path)
        return trace.scenario, trace
    scenario = read_scenario(path)
    if not scenario.run:
        return scenario, None
    trace = read_trace(path.parent / scenario.run)
    return trace.scenario.model_copy(update={"name": scenario.name, "about": scenario.about}), trace


def _with_faults(scenario: Scenario, rate: float) -> Scenario:
    return scenario.model_copy(update={"faults": scenario.faults.model_copy(update={"nodes_per_hour": rate})})


def _matrix(scenario: Scenario, given: SimulateArguments) -> SimulationMatrix:
    overrides = {name: getattr(given, name) for name in SimulationMatrix.model_fields}
    matrix = scenario.matrix.model_copy(
        update={name: values for name, values in overrides.items() if values is not None}
    )
    if min(matrix.nodes) < 1 or min(matrix.in_flight) < 1 or min(matrix.max_staleness) < 0:
        raise UserError("--nodes and --in-flight must be at least 1, and --max-staleness at least 0")
    if max(*matrix.nodes, *matrix.in_flight) > _LARGEST:
        raise UserError(f"--nodes and --in-flight can be at most {_LARGEST:,}")
    if max(matrix.max_staleness) > _LARGEST:
        raise UserError(
            f"--max-staleness {max(matrix.max_staleness)} is too large: give {_LARGEST:,} or less (each row is "
            "compared with a run without a bound anyway)"
        )
    least = max(1, scenario.learner.publish_every - 1)
    if min(matrix.max_staleness) < least and any(mode is not AdmissionMode.SYNC for mode in matrix.mode):
        raise UserError(
            f"--max-staleness {min(matrix.max_staleness)}: in modes other than sync tokens are {least} steps old: give "
            f"{least} or more"
        )
    return matrix


COMMAND = Command("simulate", SimulateArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
