"""The workers' side: appending trajectories that arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

from protocol.journal.batched_sql import placeholders, statement_batches
from protocol.journal.group_closing import GroupClosing
from protocol.journal.values import AppendOutcome, ClosedGroup, TrajectoryArrival
from protocol.trajectory import GroupId

_Sample: TypeAlias = tuple[GroupId, int]
_Plan: TypeAlias = tuple[str, int, int]
"""Task, seed and size of the group."""


def _sample(arrival: TrajectoryArrival) -> _Sample:
    return arrival.request.group, arrival.request.sample


class AppendOperations(GroupClosing):
    """Appends trajectories; the first of each sample wins."""

    def append_batch(self, arrivals: Sequence[TrajectoryArrival]) -> tuple[list[AppendOutcome], list[ClosedGroup]]:
        """Append a batch in one transaction, durable on return; return an outcome per arrival and the groups that it
        closes.

        Payloads stay stored at least until the next append or abandonment, even those of a dropped group, so that the
        caller can export them.
        """
        with self._transaction():
            self._forget_dropped()
            outcomes = self._outcomes(arrivals)
            counts = Counter(outcomes)
            self._add("acknowledged", counts[AppendOutcome.APPENDED] + counts[AppendOutcome.SUPERSEDED])
            self._add("unknown", counts[AppendOutcome.UNKNOWN])
            pairs = zip(arrivals, outcomes, strict=True)
            appended = [arrival for arrival, outcome in pairs if outcome is AppendOutcome.APPENDED]
            self._store(appended)
            last = {arrival.request.group: number for number, arrival in enumerate(appended)}
            closed = self._close_complete(sorted(last, key=last.__getitem__))
        return outcomes, closed

    def _outcomes(self, arrivals: Sequence[TrajectoryArrival]) -> list[AppendOutcome]:
        digests, plans, awaited = self._found({_sample(arrival) for arrival in arrivals})
        outcomes: list[AppendOutcome] = []
        for new in arrivals:
            sample, request = _sample(new), new.request
            if plans.get(sample) != (request.task, request.seed, request.group_size):
                outcomes.append(AppendOutcome.UNKNOWN)
            elif sample in digests:
                outcomes.append(AppendOutcome.DUPLICATE if digests[sample] == new.digest else self._supersede(new))
            elif sample in awaited:
                digests[sample] = new.digest
                outcomes.append(AppendOutcome.APPENDED)
            else:
                outcomes.append(AppendOutcome.UNKNOWN)
        return outcomes

    def _found(self, samples: Iterable[_Sample]) -> tuple[dict[_Sample, bytes], dict[_Sample, _Plan], set[_Sample]]:
        """Return the digests of stored samples, the plans of known ones, and those that an open group waits for."""
        digests: dict[_Sample, bytes] = {}
        plans: dict[_Sample, _Plan] = {}
        awaited: set[_Sample] = set()
        ended = self._number("ended")
        for some in statement_batches(list(samples)):
            found = self._query(
                f"WITH batch (group_id, sample) AS (VALUES {placeholders(len(some), 2)}) "  # noqa: S608  question marks
                "SELECT group_id, sample, digest, outcome IS 'open' AND rollout_requests.state IS NOT NULL, "
                "task, json_extract(seeds, '$[' || sample || ']'), size FROM batch "
                "LEFT JOIN trajectories USING (group_id, sample) "
                "LEFT JOIN rollout_requests USING (group_id, sample) LEFT JOIN groups ON id = group_id",
                *chain.from_iterable(some),
            )
            for group, sample, digest, is_open, *plan in found:
                plans[group, sample] = tuple(plan)
                if digest is not None:
                    digests[group, sample] = digest
                elif is_open and not ended:
                    awaited.add((group, sample))
        return digests, plans, awaited

    def _supersede(self, new: TrajectoryArrival) -> AppendOutcome:
        inserted = self._db.execute(
            "INSERT OR IGNORE INTO superseded_trajectories VALUES (?, ?, ?)", (*_sample(new), new.digest)
        )
        return AppendOutcome.SUPERSEDED if inserted.rowcount else AppendOutcome.SUPERSEDED_AGAIN

    def _store(self, arrivals: Sequence[TrajectoryArrival]) -> None:
        for some in statement_batches(arrivals):
            self._db.execute(
                "INSERT INTO trajectories (trajectory, group_id, sample, bytes, sampled, digest, "  # noqa: S608  question marks
                "reward, passed, status) "
                f"VALUES {placeholders(len(some), 9)}",
                [
                    value
                    for new in some
                    for value in (
                        *(new.request.trajectory_id, *_sample(new), len(new.blob), new.sampled),
                        *(new.digest, new.reward, new.passed, new.status.value),
                    )
                ],
            )
            self._db.execute(
                f"INSERT INTO payloads VALUES {placeholders(len(some), 2)}",  # noqa: S608  question marks
                [value for new in some for value in (new.request.trajectory_id, new.blob)],
            )
            self._db.execute(
                f"WITH here (group_id, sample) AS (VALUES {placeholders(len(some), 2)}) "  # noqa: S608  question marks
                "UPDATE rollout_requests SET state = 'arrived', reason = NULL WHERE (group_id, sample) IN here",
                [value for new in some for value in _sample(new)],
            )
