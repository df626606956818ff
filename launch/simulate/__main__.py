"""``python -m launch.simulate --scenario NAME|FILE|RUN …``: what admission and age would cost on a cluster, simulated.

A virtual clock and the real conductor, staleness, routing and journal rules; episodes, engines and steps are nothing
but time.  Each row takes seconds on one core, and the same seed gives the same bytes.  A scenario is a name, a TOML
file, a trace, or the directory of a real run, which is then replayed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from launch.simulate.run_trace import RunTrace, read_trace, write_trace
from launch.simulate.scenario import Scenario, SimulationMatrix, find_scenario, read_scenario, scenario_names
from launch.simulate.simulated_cluster import SimulationSettings
from launch.simulate.simulation_page import write_simulation
from launch.simulate.simulation_rows import SimulationRunner
from launch.simulate.simulation_table import table_lines
from protocol.cli.exit_codes import main_guard
from protocol.cli.output import display_path, error_console
from protocol.cli.parser import CommandLineParser, parse_command_line
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.staleness import AdmissionMode, StaleTokenPolicy

T = TypeVar("T")

_LARGEST = 100_000
_NUMBER = "a whole number"


def parser() -> CommandLineParser:
    made = CommandLineParser(
        prog="python -m launch.simulate",
        description="Simulate training on a cluster: the real conductor, staleness, routing and journal, virtual time.",
        epilog="Example: python -m launch.simulate --scenario scale --eta 1,2,4,8 --in-flight 768,1024,1536",
    )
    add = made.add_argument
    modes, policies = ", ".join(AdmissionMode), ", ".join(StaleTokenPolicy)
    add("--scenario", required=True, metavar="NAME|FILE|RUN", help=f"one of {', '.join(scenario_names())}; or a path")
    add("--nodes", type=_list(int, _NUMBER), metavar="N,…", help="nodes of the cluster")
    add("--mode", type=_list(AdmissionMode, f"one of {modes}"), metavar="MODE,…", help=modes)
    add("--policy", type=_list(StaleTokenPolicy, f"one of {policies}"), metavar="POLICY,…", help=policies)
    add("--eta", type=_list(int, _NUMBER), metavar="N,…", help="age bounds, in optimizer steps")
    add("--in-flight", type=_list(int, _NUMBER), metavar="N,…", help="episodes at once over all nodes")
    add("--faults", type=float, metavar="RATE", help="share of the nodes that die in an hour, 0.005 for example")
    add("--seed", type=int, default=0, metavar="S", help="seed of episodes and faults")
    add("--jobs", type=int, default=1, metavar="N", help="simulations at once, each on a core of its own")
    add("--out", type=Path, metavar="FOLDER", help="where index.html, simulation.png and rows.json go")
    add("--write-trace", type=Path, metavar="FILE", help="keep a replayed run as one small file")
    add("--json", action="store_true", help="print the rows as one JSON object on standard output")
    return made


def main() -> None:
    """Simulate every combination; see :mod:`launch.simulate`."""
    console = error_console()
    with parse_command_line(parser()) as (given, out):
        scenario, trace = _scenario(find_scenario(given.scenario))
        if given.write_trace is not None:
            if trace is None:
                raise UserError("--write-trace keeps a run: give --scenario the folder of one")
            write_trace(trace, given.write_trace)
        if given.faults is not None:
            scenario = _with_faults(scenario, given.faults)
        matrix = _matrix(scenario, given)
        folder = _made(given.out or Path("simulations") / scenario.name)

        def say(cell: SimulationSettings) -> None:
            console.print(f"simulating {cell.description}")

        rows = SimulationRunner(scenario, given.seed, trace).run_matrix(matrix, max(1, given.jobs), say)
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
        raise UserError(f"cannot make the folder {folder}: {error.strerror}; name another one with --out") from error
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
    if not 0 <= rate <= 1:
        raise UserError(f"--faults {rate:g} is no share of the nodes: give a number from 0 to 1, 0.005 for example")
    return scenario.model_copy(update={"faults": scenario.faults.model_copy(update={"nodes_per_hour": rate})})


def _matrix(scenario: Scenario, given: argparse.Namespace) -> SimulationMatrix:
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


def _list(kind: Callable[[str], T], what: str) -> Callable[[str], tuple[T, ...]]:
    """Reads values with commas between them, each of which is ``what``."""

    def read(text: str) -> tuple[T, ...]:
        return tuple(one(part.strip()) for part in text.split(","))

    def one(word: str) -> T:
        try:
            return kind(word)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{word!r} is not {what}") from None

    return read


if __name__ == "__main__":
    sys.exit(main_guard(main))
