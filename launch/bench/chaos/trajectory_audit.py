"""Accounts for every acknowledged trajectory of a run, from :mod:`.evidence` alone.  Pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launch.bench.chaos.evidence import JournalRow, LedgerStep, RunEvidence
from protocol.trajectory import DropReason

_REASONS: frozenset[str] = frozenset(DropReason)
_SOON = 64
"""Number of groups within which the task of a wasted group has to come again."""


@dataclass(frozen=True, slots=True)
class ChaosAccounting:
    acknowledged: int
    """Number of acknowledgements that workers received, one for each durable trajectory."""
    trained_exactly_once: int
    dropped: int
    """Number of trajectories that were dropped with a reason."""
    in_buffer: int
    """Number of trajectories that can still be leased, also after a resume from the last checkpoint."""
    superseded: int
    """Number of trajectories that came second for their sample."""
    lost: int
    """Acknowledged trajectories that are in none of these states."""
    duplicated: int
    """Trajectories that were used twice in the lineage of a checkpoint, or that were used and can be leased again."""
    sampler_skips: int
    """Groups with another task than the next one, unknown groups, and tasks that never came again."""
    versions_with_two_hashes: int
    negative_staleness: int
    """Number of trained tokens that are newer than the weights that used them, or of unrelated weights."""

    @property
    def is_balanced(self) -> bool:
        return self.acknowledged == self.trained_exactly_once + self.dropped + self.in_buffer + self.superseded

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, duplicated, skipped or too new."""
        wrong = (self.lost, self.duplicated, self.sampler_skips, self.versions_with_two_hashes, self.negative_staleness)
        return not any(wrong)


def audit_trajectories(evidence: RunEvidence, order: Sequence[str], seed: int) -> ChaosAccounting:
    """Account for all trajectories; ``order`` lists the run's tasks, and ``seed`` is the run's."""
    counts = Counter(_classify_trajectory(evidence, name, outcomes) for name, outcomes in _first_acks(evidence))
    superseded, unrecorded = _superseded(evidence)
    return ChaosAccounting(
        acknowledged=counts.total() + superseded + unrecorded,
        trained_exactly_once=counts["trained"],
        dropped=counts["dropped"],
        in_buffer=counts["in_buffer"],
        superseded=superseded,
        lost=counts["lost"] + unrecorded,
        duplicated=len(_duplicated(evidence)),
        sampler_skips=count_sampler_skips(evidence.opened, evidence.wasted, order, seed),
        versions_with_two_hashes=sum(len(digests) > 1 for digests in evidence.hashes.values()),
        negative_staleness=_negative_staleness(evidence),
    )


def _first_acks(evidence: RunEvidence) -> list[tuple[str, int]]:
    """Return (trajectory, number of its acknowledgement) for the first acknowledgement of each sample; a second one
    for the same sample belongs to a superseded trajectory.
    """
    counts: Counter[str] = Counter()
    found: list[tuple[str, int]] = []
    for name, outcome in evidence.acks:
        if outcome in ("appended", "duplicate"):
            found.append((name, counts[name]))
            counts[name] += 1
    return found


def _classify_trajectory(evidence: RunEvidence, name: str, number: int) -> str:
    row, ledger = evidence.rows.get(name), evidence.ledgers[-1]
    if number > 0:
        return "lost"
    trained = sum(line.trained.count(name) for line in ledger)
    if trained:
        return "trained" if trained == 1 else "trained_again"
    if row is None:
        return "lost"
    if reasons := [line.dropped[name] for line in ledger if name in line.dropped]:
        return "dropped" if _REASONS.issuperset(reasons) else "lost"
    undone = row.step is not None and row.step > evidence.checkpoint_step
    if row.state == "buffered" or undone:
        return "in_buffer" if row.stored and row.usable else "lost"
    return "dropped" if row.state == "dropped" and row.reason in _REASONS else "lost"


def _superseded(evidence: RunEvidence) -> tuple[int, int]:
    """Return the acknowledgements of superseded trajectories: those in the journal, and the others."""
    counts = Counter(name for name, outcome in evidence.acks if outcome in ("superseded", "superseded_again"))
    noted = sum(min(count, evidence.superseded.get(name, 0)) for name, count in counts.items())
    return noted, counts.total() - noted


def _duplicated(evidence: RunEvidence) -> set[str]:
    found: set[str] = set()
    for ledger in evidence.ledgers:
        counts = Counter(name for line in ledger for name in (*line.trained, *line.dropped))
        found |= {name for name, count in counts.items() if count > 1}
    for line in evidence.ledgers[-1]:
        found |= {name for name in line.trained if not _is_used(evidence.rows.get(name), "trained", line)}
        found |= {name for name in line.dropped if not _is_used(evidence.rows.get(name), "dropped", line)}
    return found


def _is_used(row: JournalRow | None, how: str, line: LedgerStep) -> bool:
    """Return whether the journal would not lease the trajectory again after a resume from the ledger's checkpoint."""
    return row is not None and (row.state, row.step) == (how, line.step)


def _negative_staleness(evidence: RunEvidence) -> int:
    wrong = 0
    for line in evidence.ledgers[-1]:
        for name in line.trained:
            wrong += name not in evidence.sampled  # nobody can say how old its tokens were
            for version, tokens in evidence.sampled.get(name, {}).items():
                staleness = _staleness(evidence.lineage, version, line.version)
                wrong += tokens if staleness is None or staleness < 0 else 0
    return wrong


def _staleness(lineage: Mapping[int, tuple[int, int]], sampled: int, using: int) -> int | None:
    """Return the optimizer steps from ``sampled`` back to the nearest common ancestor and on to ``using``; None if
    there is no such ancestor, or if ``sampled`` descends from ``using``.
    """
    mine = _ancestors(lineage, using)
    common = next((version for version in _ancestors(lineage, sampled) if version in mine), None)
    if common is None or common == using != sampled:
        return None
    back, on = (lineage[version][0] - lineage[common][0] for version in (sampled, using))
    return min(back, on) if min(back, on) < 0 else back + on


def _ancestors(lineage: Mapping[int, tuple[int, int]], version: int) -> list[int]:
    """Return ``version`` and its ancestors, nearest first."""
    found: list[int] = []
    while version in lineage and version not in found:
        found.append(version)
        version = lineage[version][1]
    return found


def count_sampler_skips(opened: Mapping[int, set[str]], wasted: Sequence[int], order: Sequence[str], seed: int) -> int:
    """Count deviations of the groups from the order that the seed gives.  The task of a wasted group comes once more
    at any later time, and only for its first wasted group.
    """
    skips, position, last = 0, 0, max(opened, default=-1)
    owed: dict[str, int] = {}
    for group in wasted:
        for task in opened.get(group, ()):
            owed.setdefault(task, group)
    for group in range(last + 1):
        tasks = opened.get(group)
        if tasks is None or len(tasks) > 1:
            skips, position = skips + 1, position + 1
            continue
        (task,) = tasks
        if task == _task_at(position, order, seed):
            position += 1
        elif owed.get(task, group) < group:
            owed[task] = last + 1  # paid
        else:
            skips += 1
            position += 1
    return skips + sum(group + _SOON < last for group in owed.values())


def _task_at(position: int, order: Sequence[str], seed: int) -> str:
    """Return the task at a position; every epoch is its own permutation."""
    epoch, index = divmod(position, len(order))
    indices = list(range(len(order)))
    random.Random(f"{seed}/{epoch}").shuffle(indices)
    return order[indices[index]]
