"""If these fail, `launch.bench chaos` would say that all is well of a run that loses, repeats or mistakes something."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from launch.bench.chaos.evidence import JournalRow, JsonLine, LedgerStep, RunEvidence, require_complete_events
from launch.bench.chaos.trajectory_audit import ChaosAccounting, audit_trajectories
from protocol.weights import make_version

SEED = 3
TASKS = tuple(f"task-{number}" for number in range(5))
FIRST, SECOND, BRANCH, RESUMED = (make_version(1, count) for count in range(4))


def named(group: int, sample: int = 0) -> str:
    return f"train-g{group:06d}-s{sample:02d}"


TRAINED, DROPPED, STALE, HELD, UNDONE = map(named, range(5))


def tasks_of(groups: int) -> dict[int, set[str]]:
    """Each group's task, as the seed orders them."""
    order: list[str] = []
    while len(order) < groups:
        epoch = list(range(len(TASKS)))
        random.Random(f"{SEED}/{len(order) // len(TASKS)}").shuffle(epoch)
        order += [TASKS[index] for index in epoch]
    return {group: {order[group]} for group in range(groups)}


def evidence() -> RunEvidence:
    """Return the evidence of a sound run with one trajectory of each fate."""
    return RunEvidence(
        acks=[
            (TRAINED, "appended"),
            (TRAINED, "superseded"),
            (DROPPED, "duplicate"),
            (STALE, "appended"),
            (HELD, "appended"),
            (UNDONE, "appended"),
        ],
        rows={
            TRAINED: JournalRow("trained", 1, None, stored=True),
            DROPPED: JournalRow("dropped", None, "zero_variance", stored=False),
            STALE: JournalRow("dropped", 2, "all_stale", stored=False),
            HELD: JournalRow("buffered", None, None, stored=True),
            UNDONE: JournalRow("trained", 3, None, stored=True),
        },
        superseded={TRAINED: 1},
        ledgers=[
            [LedgerStep(1, FIRST, (TRAINED,), {})],
            [LedgerStep(1, FIRST, (TRAINED,), {}), LedgerStep(2, SECOND, (), {STALE: "all_stale"})],
        ],
        checkpoint_step=2,
        lineage={FIRST: (0, -1), SECOND: (1, FIRST), BRANCH: (1, FIRST)},
        sampled={TRAINED: {FIRST: 7}},
        hashes={FIRST: {"a"}, SECOND: {"b"}},
        opened=tasks_of(12),
        wasted=[],
    )


def settled(evidence: RunEvidence) -> ChaosAccounting:
    return audit_trajectories(evidence, TASKS, SEED)


def test_each_acknowledged_trajectory_is_accounted_for_once() -> None:
    accounting = settled(evidence())
    assert accounting == ChaosAccounting(
        acknowledged=6,
        trained_exactly_once=1,
        dropped=2,
        in_buffer=2,
        superseded=1,
        lost=0,
        duplicated=0,
        sampler_skips=0,
        versions_with_two_hashes=0,
        negative_staleness=0,
    )
    assert accounting.is_balanced
    assert accounting.is_clean


def test_a_trajectory_acknowledged_as_superseded_only_when_sent_again_is_accounted_for() -> None:
    """A trajectory is stored twice after a lost acknowledgement."""
    again = [(name, f"{outcome}_again" if outcome == "superseded" else outcome) for name, outcome in evidence().acks]
    assert settled(replace(evidence(), acks=again)) == settled(evidence())


def without(name: str) -> RunEvidence:
    right = evidence()
    return replace(right, rows={key: row for key, row in right.rows.items() if key != name})


def with_row(name: str, row: JournalRow) -> RunEvidence:
    right = evidence()
    return replace(right, rows={**right.rows, name: row})


@pytest.mark.parametrize(
    "wrong",
    [
        without(HELD),
        without(DROPPED),
        with_row(HELD, JournalRow("buffered", None, None, stored=False)),
        with_row(HELD, JournalRow("buffered", None, None, stored=True, usable=False)),
        with_row(UNDONE, JournalRow("trained", 3, None, stored=False)),
        with_row(HELD, JournalRow("trained", 2, None, stored=True)),
        with_row(DROPPED, JournalRow("dropped", None, None, stored=False)),
        with_row(DROPPED, JournalRow("dropped", None, "because", stored=False)),
        replace(
            evidence(), ledgers=[[LedgerStep(1, FIRST, (TRAINED,), {}), LedgerStep(2, SECOND, (), {STALE: "because"})]]
        ),
        replace(evidence(), acks=[*evidence().acks, (named(7), "appended")]),
        replace(evidence(), acks=[*evidence().acks, (TRAINED, "appended")]),
        replace(evidence(), superseded={}),
    ],
)
def test_an_acknowledged_trajectory_that_is_found_nowhere_counts_as_lost(wrong: RunEvidence) -> None:
    accounting = settled(wrong)
    assert accounting.lost == 1
    assert not accounting.is_balanced
    assert not accounting.is_clean


def with_ledger(*lines: LedgerStep) -> RunEvidence:
    return replace(evidence(), ledgers=[*evidence().ledgers[:-1], lines])


ONCE = LedgerStep(1, FIRST, (TRAINED,), {})


@pytest.mark.parametrize(
    "wrong",
    [
        with_ledger(ONCE, LedgerStep(2, SECOND, (TRAINED,), {})),
        with_ledger(LedgerStep(1, FIRST, (TRAINED, TRAINED), {})),
        with_ledger(ONCE, LedgerStep(2, SECOND, (), {TRAINED: "all_stale"})),
        with_ledger(
            ONCE, LedgerStep(2, SECOND, (), {STALE: "all_stale"}), LedgerStep(3, SECOND, (), {STALE: "all_stale"})
        ),
        with_row(STALE, JournalRow("buffered", None, None, stored=True)),
        with_row(TRAINED, JournalRow("buffered", None, None, stored=True)),
        with_row(TRAINED, JournalRow("trained", 3, None, stored=True)),
        replace(evidence(), ledgers=[[ONCE, LedgerStep(2, SECOND, (TRAINED,), {})], evidence().ledgers[-1]]),
    ],
)
def test_a_trajectory_that_is_or_could_be_trained_twice_is_reported(wrong: RunEvidence) -> None:
    accounting = settled(wrong)
    assert accounting.duplicated == 1
    assert not accounting.is_clean


def test_a_trajectory_that_was_trained_twice_unbalances_the_accounting() -> None:
    assert not settled(with_ledger(ONCE, LedgerStep(2, SECOND, (TRAINED,), {}))).is_balanced


def without_group(group: int) -> dict[int, set[str]]:
    return {number: tasks for number, tasks in tasks_of(12).items() if number != group}


def swapped(one: int, other: int) -> dict[int, set[str]]:
    tasks = tasks_of(12)
    return {**tasks, one: tasks[other], other: tasks[one]}


@pytest.mark.parametrize(
    ("opened", "skips"),
    [
        (without_group(4), 1),
        (without_group(0), 1),
        (swapped(5, 6), 2),
        ({**tasks_of(12), 7: {*TASKS[:2]}}, 1),
        ({group: tasks_of(13)[group + 1] for group in range(12)}, 11),
    ],
)
def test_a_cursor_that_skips_or_repeats_is_found(opened: dict[int, set[str]], skips: int) -> None:
    accounting = settled(replace(evidence(), opened=opened))
    assert accounting.sampler_skips >= skips
    assert not accounting.is_clean


def test_the_task_of_a_wasted_group_is_issued_exactly_once_more() -> None:
    plain = [tasks for _, tasks in sorted(tasks_of(100).items())]
    again = dict(enumerate([*plain[:6], plain[2], *plain[6:]]))
    right = replace(evidence(), opened=again, wasted=[2])
    assert settled(right).sampler_skips == 0
    assert settled(replace(right, wasted=[])).sampler_skips > 0, "a task came again for no reason"
    assert settled(replace(right, opened=tasks_of(100))).sampler_skips == 1, "it never came again"
    twice = dict(enumerate([*plain[:6], plain[2], *plain[6:9], plain[2], *plain[9:]]))
    assert settled(replace(right, opened=twice, wasted=[2, 6])).sampler_skips > 0


def test_a_version_with_two_hashes_is_found() -> None:
    accounting = settled(replace(evidence(), hashes={FIRST: {"a", "c"}, SECOND: {"b"}}))
    assert accounting.versions_with_two_hashes == 1
    assert not accounting.is_clean


@pytest.mark.parametrize(
    "wrong",
    [
        replace(evidence(), sampled={TRAINED: {77: 4}}),
        replace(evidence(), sampled={TRAINED: {BRANCH: 4}}),
        replace(evidence(), lineage={FIRST: (2, -1), SECOND: (1, FIRST)}, sampled={TRAINED: {SECOND: 4}}),
        replace(evidence(), lineage={FIRST: (0, -1), SECOND: (1, -1)}, sampled={TRAINED: {SECOND: 4}}),
    ],
)
def test_tokens_without_a_valid_age_are_reported(wrong: RunEvidence) -> None:
    accounting = settled(wrong)
    assert accounting.negative_staleness == 4
    assert not accounting.is_clean


def test_incomplete_events_are_refused_as_evidence() -> None:
    """The acknowledgements come from them.  A process in the place of a dead one counts from 0."""

    def events_with(*seqs: int) -> list[JsonLine]:
        return [{"writer": "worker-0", "seq": seq} for seq in seqs]

    others: list[JsonLine] = [{"writer": "buffer", "seq": 0}]
    assert require_complete_events([*events_with(0, 1, 2, 0, 1), *others]) == [*events_with(0, 1, 2, 0, 1), *others]
    for broken in (events_with(0, 1, 3), events_with(1), events_with(0, 1, 1)):
        with pytest.raises(ValueError, match="events of worker-0, 1 before"):
            require_complete_events([*others, *broken])


def test_a_trained_trajectory_that_was_not_exported_is_reported() -> None:
    assert settled(replace(evidence(), sampled={})).negative_staleness == 1


def test_the_age_of_a_token_from_an_abandoned_branch_is_counted_over_the_common_ancestor() -> None:
    """Sampled by weights that a dead learner had made and that nobody has any more; the next learner names the
    checkpoint's weights anew before it uses them."""
    right = with_ledger(LedgerStep(1, RESUMED, (TRAINED,), {}), LedgerStep(2, SECOND, (), {STALE: "all_stale"}))
    right = replace(right, lineage={**right.lineage, RESUMED: (0, FIRST)}, sampled={TRAINED: {BRANCH: 4}})
    assert settled(right).negative_staleness == 0
