"""The rows of a simulation: every combination of the matrix, compared with its synchronous, its unbounded and its
faultless counterpart."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass

from launch.simulate.episode_workload import DrawnWorkload, EpisodeWorkload
from launch.simulate.run_trace import RunTrace
from launch.simulate.scenario import Scenario, SimulationMatrix
from launch.simulate.simulated_cluster import NodeFault, SimulationResult, SimulationSettings, simulate
from protocol.events import JsonValue
from protocol.staleness import AdmissionMode


@dataclass(frozen=True, slots=True)
class SimulationRow:
    cell: SimulationSettings
    result: SimulationResult
    sync_tokens_per_s: float
    """Throughput of the best synchronous run over the matrix's in-flight numbers, on as many nodes."""
    unbounded_tokens_per_s: float
    """Throughput of the best asynchronous run without a staleness bound, likewise."""
    faultless_tokens_per_s: float
    """Throughput of the same run without faults."""

    @property
    def trained_tokens_per_s(self) -> float:
        return tokens_per_s(self.result)

    @property
    def vs_faultless(self) -> float:
        return self.trained_tokens_per_s / self.faultless_tokens_per_s

    def as_json(self) -> dict[str, JsonValue]:
        cell, outcome, account = self.cell, self.result, self.result.account
        staleness, trained, sampled = account.tokens_by_staleness(), account.trained, account.sampled
        rate = self.trained_tokens_per_s
        return {
            "nodes": cell.nodes,
            "mode": cell.mode.value,
            "policy": cell.policy.value,
            "max_staleness": cell.max_staleness,
            "in_flight": cell.in_flight,
            "trained_tokens_per_s": round(rate, 2),
            "vs_sync": round(rate / self.sync_tokens_per_s, 4),
            "vs_unbounded": round(rate / self.unbounded_tokens_per_s, 4),
            "staleness_mean": round(sum(steps * tokens for steps, tokens in enumerate(staleness)) / max(trained, 1), 4),
            "staleness_max": max((steps for steps, tokens in enumerate(staleness) if tokens), default=0),
            "masked_share": round(1 - trained / max(sampled, 1), 4),
            "trained_share_by_decile": [round(share, 4) for share in account.trained_share_by_decile()],
            "learner_idle": round(account.waited_s / account.seconds, 4),
            "engine_idle": round(outcome.engine_idle, 4),
            "dropped": dict(outcome.dropped),
            "vs_faultless": round(self.vs_faultless, 4),
            "faults": [_fault_as_json(fault) for fault in outcome.faults],
        }


def _fault_as_json(fault: NodeFault) -> dict[str, JsonValue]:
    return {
        "node": fault.node,
        "at_s": round(fault.at_s, 3),
        "away_s": None if fault.away_s is None else round(fault.away_s, 3),
        "episodes": fault.episodes,
        "requests": fault.requests,
        "tokens": fault.tokens,
    }


def tokens_per_s(outcome: SimulationResult) -> float:
    return outcome.account.trained / outcome.account.seconds


def row_label(row: SimulationRow, rows: Sequence[SimulationRow]) -> str:
    """Return the settings in which ``row`` differs from other rows, without the in-flight number."""
    cell = row.cell
    parts = [] if cell.mode is AdmissionMode.ASYNC else [cell.mode.value.replace("_", " ")]
    if cell.mode is not AdmissionMode.SYNC:
        parts.append(f"staleness ≤ {cell.max_staleness}")
    if len({other.cell.policy for other in rows}) > 1:
        parts.append(cell.policy.value)
    if len({other.cell.nodes for other in rows}) > 1:
        parts.append(f"{cell.nodes} nodes")
    return ", ".join(parts)


def group_by_label(rows: Sequence[SimulationRow]) -> dict[str, list[SimulationRow]]:
    """Group rows that differ only in their in-flight number, by label; the bound of synchronous rows does not
    matter."""
    found: dict[str, list[SimulationRow]] = {}
    for row in rows:
        line = found.setdefault(row_label(row, rows), [])
        if all(other.cell.in_flight != row.cell.in_flight for other in line):
            line.append(row)
    return found


def best_rows(rows: Sequence[SimulationRow]) -> dict[str, SimulationRow]:
    """Return the row with the highest throughput of each label."""
    return {name: max(line, key=lambda row: row.trained_tokens_per_s) for name, line in group_by_label(rows).items()}


@dataclass(frozen=True, slots=True)
class SimulationRunner:
    """Runs each distinct simulation once, however many rows need it."""

    scenario: Scenario
    seed: int
    trace: RunTrace | None = None

    def run_matrix(
        self, matrix: SimulationMatrix, concurrency: int, on_start: Callable[[SimulationSettings], None]
    ) -> list[SimulationRow]:
        """Return the rows in the order of the matrix.  ``concurrency`` simulations run at once, and ``on_start`` is
        called for each."""
        cells = [
            SimulationSettings(*each)
            for each in itertools.product(
                matrix.nodes, matrix.mode, matrix.policy, matrix.max_staleness, matrix.in_flight
            )
        ]
        counterparts = {
            cell: (_sync(cell, matrix), _unbounded(cell, matrix), [self._faultless(cell)]) for cell in cells
        }
        needed = {_canonical(each) for cell in cells for each in itertools.chain([cell], *counterparts[cell])}
        done = self._simulate_all(sorted(needed), concurrency, on_start)

        def best(candidates: Sequence[SimulationSettings]) -> float:
            return max(tokens_per_s(done[_canonical(each)]) for each in candidates)

        return [SimulationRow(cell, done[_canonical(cell)], *map(best, counterparts[cell])) for cell in cells]

    def _faultless(self, cell: SimulationSettings) -> SimulationSettings:
        return cell.without_faults if self.scenario.faults.nodes_per_hour else cell

    def _simulate_all(
        self, cells: Sequence[SimulationSettings], concurrency: int, on_start: Callable[[SimulationSettings], None]
    ) -> dict[SimulationSettings, SimulationResult]:
        if concurrency == 1:
            return {cell: self._run_here(cell, on_start) for cell in cells}
        with ProcessPoolExecutor(min(concurrency, len(cells)), mp_context=multiprocessing.get_context("spawn")) as pool:
            running = [(cell, pool.submit(self.simulate, cell)) for cell in cells]
            return {cell: self._awaited(cell, outcome, on_start) for cell, outcome in running}

    def _run_here(self, cell: SimulationSettings, on_start: Callable[[SimulationSettings], None]) -> SimulationResult:
        on_start(cell)
        return self.simulate(cell)

    @staticmethod
    def _awaited(
        cell: SimulationSettings, outcome: Future[SimulationResult], on_start: Callable[[SimulationSettings], None]
    ) -> SimulationResult:
        on_start(cell)
        return outcome.result()

    def simulate(self, cell: SimulationSettings) -> SimulationResult:
        return simulate(
            self.scenario, cell, self.build_workload(), self.seed, self.trace.replay_overrides if self.trace else None
        )

    def build_workload(self) -> EpisodeWorkload:
        if self.trace is not None:
            return self.trace.workload
        model = self.scenario.episode
        return DrawnWorkload(
            median_s=model.median_s,
            p95_over_median=model.p95_over_median,
            cut_over_median=model.cut_over_median,
            turns=model.turns,
            generate_share=model.generate_share,
            tokens_per_s=model.tokens_per_s,
            within_task=model.within_task,
            reward=model.reward,
            seed=self.seed,
        )


def _canonical(cell: SimulationSettings) -> SimulationSettings:
    """Return the settings that are simulated for ``cell``: bound and policy make no difference to synchronous runs."""
    return cell.as_sync if cell.mode is AdmissionMode.SYNC else cell


def _sync(cell: SimulationSettings, matrix: SimulationMatrix) -> list[SimulationSettings]:
    return [cell._replace(mode=AdmissionMode.SYNC, in_flight=count) for count in matrix.in_flight]


def _unbounded(cell: SimulationSettings, matrix: SimulationMatrix) -> list[SimulationSettings]:
    return [cell.without_staleness_bound._replace(in_flight=count) for count in matrix.in_flight]
