"""The rows of a simulation: every combination that was asked for, each beside its synchronous and its unbounded
counterpart."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass

from launch.simulate.scenario import Matrix, Scenario
from launch.simulate.trace import Trace
from launch.simulate.workload import Drawn, Workload
from launch.simulate.world import UNBOUNDED, Cell, Outcome, simulate
from protocol.events import Json
from protocol.staleness import AdmissionMode


@dataclass(frozen=True, slots=True)
class Row:
    cell: Cell
    outcome: Outcome
    sync_tokens_per_s: float
    """The best of the synchronous runs over the in-flight numbers that were asked for, on as many nodes."""
    unbounded_tokens_per_s: float
    """The best of the asynchronous runs without a bound on age, likewise."""

    @property
    def trained_tokens_per_s(self) -> float:
        return tokens_per_s(self.outcome)

    def as_json(self) -> dict[str, Json]:
        cell, outcome, account = self.cell, self.outcome, self.outcome.account
        ages, trained, sampled = account.ages(), account.trained, account.sampled
        rate = self.trained_tokens_per_s
        return {
            "nodes": cell.nodes,
            "mode": cell.mode.value,
            "policy": cell.policy.value,
            "eta": cell.eta,
            "in_flight": cell.in_flight,
            "trained_tokens_per_s": round(rate, 2),
            "vs_sync": round(rate / self.sync_tokens_per_s, 4),
            "vs_unbounded": round(rate / self.unbounded_tokens_per_s, 4),
            "age_mean": round(sum(age * tokens for age, tokens in enumerate(ages)) / max(trained, 1), 4),
            "age_max": max((age for age, tokens in enumerate(ages) if tokens), default=0),
            "masked_share": round(1 - trained / max(sampled, 1), 4),
            "trained_share_by_decile": [round(share, 4) for share in account.share_by_decile()],
            "learner_idle": round(account.waited_s / account.seconds, 4),
            "engine_idle": round(outcome.engine_idle, 4),
            "dropped": dict(outcome.dropped),
        }


def tokens_per_s(outcome: Outcome) -> float:
    return outcome.account.trained / outcome.account.seconds


@dataclass(frozen=True, slots=True)
class Simulations:
    """Each distinct simulation is run once, however many rows it stands in."""

    scenario: Scenario
    seed: int
    trace: Trace | None = None

    def rows(self, matrix: Matrix, jobs: int, begun: Callable[[Cell], None]) -> list[Row]:
        """In the order of the matrix's lists; ``begun`` hears of each simulation, ``jobs`` of which run at once."""
        cells = [
            Cell(*each)
            for each in itertools.product(matrix.nodes, matrix.mode, matrix.policy, matrix.eta, matrix.in_flight)
        ]
        needed = {_same(each) for cell in cells for each in (cell, *_sync(cell, matrix), *_unbounded(cell, matrix))}
        done = self._all(sorted(needed), jobs, begun)

        def best(counterparts: Sequence[Cell]) -> float:
            return max(tokens_per_s(done[_same(each)]) for each in counterparts)

        return [
            Row(cell, done[_same(cell)], best(_sync(cell, matrix)), best(_unbounded(cell, matrix))) for cell in cells
        ]

    def _all(self, cells: Sequence[Cell], jobs: int, begun: Callable[[Cell], None]) -> dict[Cell, Outcome]:
        if jobs == 1:
            return {cell: self._told(cell, begun) for cell in cells}
        with ProcessPoolExecutor(min(jobs, len(cells)), mp_context=multiprocessing.get_context("spawn")) as pool:
            running = [(cell, pool.submit(self.simulate, cell)) for cell in cells]
            return {cell: self._awaited(cell, outcome, begun) for cell, outcome in running}

    def _told(self, cell: Cell, begun: Callable[[Cell], None]) -> Outcome:
        begun(cell)
        return self.simulate(cell)

    @staticmethod
    def _awaited(cell: Cell, outcome: Future[Outcome], begun: Callable[[Cell], None]) -> Outcome:
        begun(cell)
        return outcome.result()

    def simulate(self, cell: Cell) -> Outcome:
        return simulate(self.scenario, cell, self._workload(), self.seed, self.trace.replayed if self.trace else None)

    def _workload(self) -> Workload:
        if self.trace is not None:
            return self.trace.workload
        model = self.scenario.episode
        return Drawn(
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


def _same(cell: Cell) -> Cell:
    """The simulation that ``cell`` is: synchronous ones with another bound or policy are one."""
    return cell.sync if cell.mode is AdmissionMode.SYNC else cell


def _sync(cell: Cell, matrix: Matrix) -> list[Cell]:
    return [cell._replace(mode=AdmissionMode.SYNC, in_flight=count) for count in matrix.in_flight]


def _unbounded(cell: Cell, matrix: Matrix) -> list[Cell]:
    return [cell.unbounded._replace(in_flight=count) for count in matrix.in_flight]


def shown_eta(eta: int) -> str:
    return "-" if eta == UNBOUNDED else str(eta)
