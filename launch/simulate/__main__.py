"""``python -m launch.simulate --scenario NAME|FILE|RUN …``: what admission and age would cost on a cluster, simulated.

A virtual clock and the real scheduler, staleness, routing and journal rules; episodes, engines and steps are nothing
but time.  Each row takes seconds on one core, and the same seed gives the same bytes.  A scenario is a name, a TOML
file, a trace, or the directory of a real run, which is then replayed.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field

from launch.config.command_line import find_folder
from launch.simulate.run_trace import RunTrace, read_trace, write_trace
from launch.simulate.scenario import Scenario, SimulationMatrix, find_scenario, read_scenario, scenario_names
from launch.simulate.simulated_cluster import SimulationSettings
from launch.simulate.simulation_page import write_simulation
from launch.simulate.simulation_rows import SimulationRunner
from launch.simulate.simulation_table import table_lines
from protocol.cli.arguments import AtLeastOne, CommandArguments, Count, JsonFlag, comma_separated, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput, display_path, error_console, output_console
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.staleness import AdmissionMode, StaleTokenPolicy

_LARGEST = 100_000


class SimulateArguments(CommandArguments):
    """Simulate training on a cluster: the real scheduler, staleness, routing and journal rules on a virtual clock.

    Example: longshore simulate --scenario scale --eta 1,2,4,8 --in-flight 768,1024,1536
    """

    scenario: Annotated[
        str, option("NAME|FILE|RUN"), Field(description=f"One of {', '.join(scenario_names())}; or a path, or a run.")
    ]
    nodes: Annotated[tuple[int, ...] | None, comma_separated("N,…"), option()] = None
    """Nodes of the cluster."""
    mode: Annotated[tuple[AdmissionMode, ...] | None, comma_separated("MODE,…"), option()] = None
    """When new episodes may start: sync, one-step-off, async."""
    policy: Annotated[tuple[StaleTokenPolicy, ...] | None, comma_separated("POLICY,…"), option()] = None
    """What is done with tokens that are too old."""
    eta: Annotated[tuple[int, ...] | None, comma_separated("N,…"), option()] = None
    """Bounds of staleness, in optimizer steps."""
    in_flight: Annotated[tuple[int, ...] | None, comma_separated("N,…"), option()] = None
    """Episodes at once over all nodes."""
    faults: Annotated[float | None, option("RATE"), Field(ge=0, le=1)] = None
    """Share of the nodes that die in an hour, for example 0.005."""
    seed: Count = 0
    """Seed of episodes and faults."""
    jobs: AtLeastOne = 1
    """Simulations at once, each on a core of its own."""
    output: Annotated[Path | None, option("FOLDER")] = None
    """Folder of index.html, simulation.png and rows.json; default: simulations/SCENARIO."""
    write_trace: Annotated[Path | None, option("FILE")] = None
    """Keep a replayed run as one small file."""
    as_json: JsonFlag = False


def run(given: SimulateArguments, out: JsonOutput) -> None:
    """Simulate every combination, print the rows and write the page."""
    console = output_console()
    scenario, trace = _scenario(find_scenario(str(find_folder(Path(given.scenario)))))
    if given.write_trace is not None:
        if trace is None:
            raise UserError("--write-trace keeps a run: give --scenario the folder of one")
        write_trace(trace, given.write_trace)
    if given.faults is not None:
        scenario = _with_faults(scenario, given.faults)
    matrix = _matrix(scenario, given)
    folder = _made(given.output or Path("simulations") / scenario.name)

    def say(cell: SimulationSettings) -> None:
        error_console().print(f"simulating {cell.description}")

    rows = SimulationRunner(scenario, given.seed, trace).run_matrix(matrix, given.jobs, say)
    for line in table_lines(rows):
        console.print(line)
    if trace is not None:
        measured = trace.measured
        console.print(
            f"the run itself: {measured.trained_tokens_per_s:,.1f} trained tokens a second, mean age "
            f"{measured.staleness_mean:.3f}"
        )
    result: dict[str, JsonValue] = {"scenario": scenario.name, "rows": [row.as_json() for row in rows]}
    write_simulation(folder, scenario, rows, result, shlex.join(["python", "-m", "launch.simulate", *sys.argv[1:]]))
    console.print(f"page: {display_path(folder / 'index.html')}\nplot: {display_path(folder / 'simulation.png')}")
    out.set_result(result)


def _made(folder: Path) -> Path:
    """``folder``, before the time is spent that fills it."""
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
    asked = {name: getattr(given, name) for name in SimulationMatrix.model_fields}
    matrix = scenario.matrix.model_copy(update={name: values for name, values in asked.items() if values is not None})
    if min(matrix.nodes) < 1 or min(matrix.in_flight) < 1 or min(matrix.eta) < 0:
        raise UserError("--nodes and --in-flight have to be at least 1, and --eta at least 0")
    if max(*matrix.nodes, *matrix.in_flight) > _LARGEST:
        raise UserError(f"--nodes and --in-flight of more than {_LARGEST:,} would not end: give less")
    if max(matrix.eta) > _LARGEST:
        raise UserError(
            f"--eta {max(matrix.eta)} is no bound: what a run without one comes to stands in each row; give "
            f"{_LARGEST:,} or less"
        )
    least = max(1, scenario.learner.publish_every - 1)
    if min(matrix.eta) < least and any(mode is not AdmissionMode.SYNC for mode in matrix.mode):
        raise UserError(
            f"--eta {min(matrix.eta)}: other modes than sync make tokens {least} steps old: give {least} or more"
        )
    return matrix


COMMAND = Command("launch.simulate", SimulateArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
