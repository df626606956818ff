"""The workers' side: trajectories arrive.

A statement takes many rows: each gives Python's lock away while it runs and waits for the event loop to have it back,
so that with one for each row most of the time would be waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias, TypeVar

from protocol.journal.closing import Closing
from protocol.journal.values import AppendOutcome, Arrival, GroupClosed
from protocol.trajectory import GroupId

_ROWS = 64
"""Of a statement."""

_Item = TypeVar("_Item")
_Sample: TypeAlias = tuple[GroupId, int]


class Arrivals(Closing):
    """Appends, the first of a sample wins."""

    def append(self, arrivals: Sequence[Arrival]) -> tuple[list[AppendOutcome], list[GroupClosed]]:
        """Append a batch in one transaction, durable on return: an outcome per arrival, and the groups that are closed
        once all of it is in.

        Its payloads are stored until the next append or abandonment at least, also those of a group that it drops: the
        caller has that long to export them.
        """
        with self._transaction():
            self._forget_dropped()
            outcomes = self._outcomes(arrivals)
            counts = Counter(outcomes)
            self._add("acked", counts[AppendOutcome.APPENDED] + counts[AppendOutcome.SUPERSEDED])
            self._add("unknown", counts[AppendOutcome.UNKNOWN])
            pairs = zip(arrivals, outcomes, strict=True)
            appended = [arrival for arrival, outcome in pairs if outcome is AppendOutcome.APPENDED]
            self._store(appended)
            closed = [self._close_if_complete(group) for group in self._without_tickets_out(appended)]
        return outcomes, [closing for closing in closed if closing]

    def _outcomes(self, arrivals: Sequence[Arrival]) -> list[AppendOutcome]:
        digests, awaited = self._found({(arrival.group, arrival.sample) for arrival in arrivals})
        outcomes: list[AppendOutcome] = []
        for new in arrivals:
            sample = (new.group, new.sample)
            if sample in digests:
                outcomes.append(AppendOutcome.DUPLICATE if digests[sample] == new.digest else self._supersede(new))
            elif sample in awaited:
                digests[sample] = new.digest
                outcomes.append(AppendOutcome.APPENDED)
            else:
                outcomes.append(AppendOutcome.UNKNOWN)
        return outcomes

    def _found(self, samples: Iterable[_Sample]) -> tuple[dict[_Sample, bytes], set[_Sample]]:
        """The digests of samples that are there, and the samples that an open group waits for."""
        digests: dict[_Sample, bytes] = {}
        awaited: set[_Sample] = set()
        ended = self._number("ended")
        for some in _pieces(list(samples)):
            found = self._all(
                f"WITH asked (grp, sample) AS (VALUES {_places(2, len(some))}) "  # noqa: S608  question marks
                "SELECT grp, sample, digest, outcome IS 'open' AND tickets.state IS NOT NULL FROM asked "
                "LEFT JOIN rows USING (grp, sample) LEFT JOIN tickets USING (grp, sample) LEFT JOIN groups ON id = grp",
                *chain.from_iterable(some),
            )
            for group, sample, digest, is_open in found:
                if digest is not None:
                    digests[group, sample] = digest
                elif is_open and not ended:
                    awaited.add((group, sample))
        return digests, awaited

    def _supersede(self, new: Arrival) -> AppendOutcome:
        inserted = self._db.execute(
            "INSERT OR IGNORE INTO superseded VALUES (?, ?, ?)", (new.group, new.sample, new.digest)
        )
        return AppendOutcome.SUPERSEDED if inserted.rowcount else AppendOutcome.SUPERSEDED_AGAIN

    def _store(self, arrivals: Sequence[Arrival]) -> None:
        for some in _pieces(arrivals):
            self._db.execute(
                "INSERT INTO rows (trajectory, grp, sample, bytes, sampled, digest, reward, status) "  # noqa: S608  question marks
                f"VALUES {_places(8, len(some))}",
                [
                    value
                    for new in some
                    for value in (
                        *(new.trajectory, new.group, new.sample, len(new.blob), new.sampled),
                        *(new.digest, new.reward, new.status.value),
                    )
                ],
            )
            self._db.execute(
                f"INSERT INTO payloads VALUES {_places(2, len(some))}",  # noqa: S608  question marks
                [value for new in some for value in (new.trajectory, new.blob)],
            )
            self._db.execute(
                f"WITH here (grp, sample) AS (VALUES {_places(2, len(some))}) "  # noqa: S608  question marks
                "UPDATE tickets SET state = 'arrived', reason = NULL WHERE (grp, sample) IN here",
                [value for new in some for value in (new.group, new.sample)],
            )

    def _without_tickets_out(self, arrivals: Iterable[Arrival]) -> list[GroupId]:
        """Their groups of which no sample is awaited any more, in the order of their last arrivals."""
        last = {arrival.group: number for number, arrival in enumerate(arrivals)}
        groups = sorted(last, key=last.__getitem__)
        awaiting: set[GroupId] = set()
        for some in _pieces(groups):
            found = self._all(
                f"SELECT DISTINCT grp FROM tickets WHERE grp IN {_places(len(some), 1)} AND state = 'out'",  # noqa: S608  question marks
                *some,
            )
            awaiting.update(group for (group,) in found)
        return [group for group in groups if group not in awaiting]


def _places(columns: int, rows: int) -> str:
    """Question marks in brackets, for so many values each."""
    return ", ".join([f"({', '.join(['?'] * columns)})"] * rows)


def _pieces(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for first in range(0, len(items), _ROWS):
        yield items[first : first + _ROWS]
