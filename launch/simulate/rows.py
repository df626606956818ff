"""The rows of a simulation: every combination that was asked for, each beside its synchronous and its unbounded
counterpart."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from launch.simulate.scenario import Matrix, Scenario
from launch.simulate.trace import Trace
from launch.simulate.workload import Drawn, Workload
from launch.simulate.world import UNBOUNDED, Cell, Outcome, Replayed, simulate
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


@dataclass(slots=True)
class Simulations:
    """Each distinct simulation is run once, however many rows it stands in."""

    scenario: Scenario
    seed: int
    trace: Trace | None = None
    begun: Callable[[Cell], None] = lambda _: None
    """Told before each simulation."""
    _done: dict[Cell, Outcome] = field(default_factory=dict[Cell, Outcome])

    def rows(self, matrix: Matrix) -> Iterator[Row]:
        """In the order of the command line's lists."""
        for nodes, mode, policy, eta, in_flight in itertools.product(
            matrix.nodes, matrix.mode, matrix.policy, matrix.eta, matrix.in_flight
        ):
            cell = Cell(nodes, mode, policy, eta, in_flight)
            counterparts = [cell._replace(in_flight=count) for count in matrix.in_flight]
            yield Row(
                cell,
                self.outcome(cell),
                self._best([each.sync for each in counterparts]),
                self._best([each.unbounded for each in counterparts]),
            )

    def outcome(self, cell: Cell) -> Outcome:
        cell = cell.sync if cell.mode is AdmissionMode.SYNC else cell
        if cell not in self._done:
            self.begun(cell)
            self._done[cell] = simulate(self.scenario, cell, self._workload(), self.seed, self._replayed())
        return self._done[cell]

    def _best(self, cells: Sequence[Cell]) -> float:
        return max(tokens_per_s(self.outcome(cell)) for cell in cells)

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

    def _replayed(self) -> Replayed | None:
        return None if self.trace is None else self.trace.replayed


def shown_eta(eta: int) -> str:
    return "-" if eta == UNBOUNDED else str(eta)
