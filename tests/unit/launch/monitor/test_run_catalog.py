"""If these fail, a person does not find the trajectory that they look for, or reads another fate than it had."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.bench.monitor.synthetic_run import GROUP_SIZE, write_synthetic_run
from launch.monitor.api_types import TrajectoryRow, TrajectoryState
from launch.monitor.archive.catalog import RunCatalog
from launch.monitor.archive.query import (
    GROUP_SORTS,
    TRAJECTORY_SORTS,
    PageRequest,
    RowFilter,
    ValueRange,
    list_groups,
    list_steps,
    list_trajectories,
    newest_step,
    parse_page_cursor,
)
from launch.run_records.metrics_log import MetricsLog
from protocol import codec
from protocol.events import EventLog
from protocol.run_directory.trained_log import TrainedLog
from protocol.run_directory.trajectory_export import EXPORT_INDEX, TRAJECTORIES_FOLDER, TrajectoryExporter
from tests.support.runs.step_facts import make_step_facts
from tests.support.runs.trajectories import make_trajectory

COUNT = 256


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "history"
    assert write_synthetic_run(run_dir, COUNT) == COUNT
    return run_dir


def caught_up(run_dir: Path) -> RunCatalog:
    catalog = RunCatalog(run_dir)
    while catalog.poll():
        pass
    return catalog


@pytest.fixture(scope="module")
def catalog(written: Path) -> RunCatalog:
    return caught_up(written)


def everything(catalog: RunCatalog, wanted: RowFilter | None = None, sort: str = "oldest") -> list[TrajectoryRow]:
    return list_trajectories(catalog, wanted or RowFilter(), PageRequest(sort, COUNT)).rows


def export(run_dir: Path, *wanted: tuple[int, int, float]) -> None:
    exporter = TrajectoryExporter(run_dir, now=lambda: 50.0)
    for group, sample, reward in wanted:
        blob = codec.pack_trajectory(make_trajectory(group, sample, reward=reward))
        exporter.export_trajectory(codec.inspect_blob(blob), blob)


# -- what the files say ------------------------------------------------------------------------------------------------


def test_the_catalog_lists_every_trajectory_of_a_run(catalog: RunCatalog) -> None:
    rows = everything(catalog)
    assert len(rows) == COUNT
    states = {state: sum(row.state is state for row in rows) for state in TrajectoryState}
    assert states[TrajectoryState.TRAINED] == 64 * catalog.steps.numbers[-1]
    assert all(
        row.step is not None and row.logprob_gap == pytest.approx(0.01)
        for row in rows
        if row.state is TrajectoryState.TRAINED
    )
    assert {row.reason for row in rows if row.state is TrajectoryState.DROPPED} == {"zero_variance"}
    assert {row.group % 10 for row in rows if row.reason} >= {0}


def test_a_line_about_a_trajectory_that_is_not_yet_listed_waits_for_it(tmp_path: Path) -> None:
    """The learner's line, and the group's end, may be read before the trajectory's own."""
    catalog = RunCatalog(tmp_path)
    TrainedLog(tmp_path).record_step(1, 7, ["train-g000000-s00"], {"train-g000000-s01": "all_stale"}, {})
    events = EventLog(tmp_path, "buffer", "node-0")
    events.emit("group.closed", group=1, task="t", size=2, outcome="zero_variance", rewards=[1.0, 1.0])
    events.close()
    catalog.poll()
    export(tmp_path, (0, 0, 1.0), (0, 1, 0.0), (1, 0, 1.0))
    catalog.poll()
    listed = [(row.id, row.state, row.reason, row.step) for row in everything(catalog)]
    assert listed == [
        ("train-g000000-s00", "trained", "", 1),
        ("train-g000000-s01", "dropped", "all_stale", 1),
        ("train-g000001-s00", "dropped", "zero_variance", None),
    ]


def test_trajectories_of_rolled_back_steps_are_in_the_buffer_again(tmp_path: Path) -> None:
    export(tmp_path, (0, 0, 1.0), (0, 1, 0.0), (1, 0, 0.5))
    log, metrics = TrainedLog(tmp_path), MetricsLog(tmp_path)
    log.record_step(1, 7, ["train-g000000-s00"], {}, {})
    log.record_step(2, 8, ["train-g000000-s01"], {}, {})
    log.record_step(None, 8, [], {"train-g000001-s00": "all_stale"}, {})
    for step in (1, 2):
        metrics.append_step(make_step_facts(step), {})
    catalog = caught_up(tmp_path)
    assert [row.state for row in everything(catalog)] == ["trained", "trained", "dropped"]
    log.record_rewind(1)
    metrics.rewind(1)
    catalog.poll()
    assert [(row.state, row.step) for row in everything(catalog)] == [
        ("trained", 1),
        ("buffered", None),
        ("dropped", None),
    ]
    assert (catalog.steps.numbers, newest_step(catalog)) == ([1], 1)
    log.record_step(2, 9, [], {"train-g000000-s01": "all_stale"}, {})
    catalog.poll()
    assert everything(catalog)[1].reason == "all_stale"
    assert everything(caught_up(tmp_path)) == everything(catalog), "a new reader sees the same"


def test_trajectories_left_when_the_run_ends_count_as_dropped(tmp_path: Path) -> None:
    export(tmp_path, (0, 0, 1.0))
    catalog = caught_up(tmp_path)
    assert everything(catalog)[0].state is TrajectoryState.BUFFERED
    catalog.set_ended(True)
    assert (everything(catalog)[0].state, everything(catalog)[0].reason) == (TrajectoryState.DROPPED, "run_ended")
    assert len(everything(catalog, RowFilter(reasons=("run_ended",), states=(TrajectoryState.DROPPED,)))) == 1
    assert list_groups(catalog, RowFilter(), PageRequest()).rows[0].state == "dropped"
    catalog.set_ended(False)
    assert everything(catalog)[0].state is TrajectoryState.BUFFERED


def test_without_records_trajectory_states_come_from_the_newest_checkpoint(tmp_path: Path) -> None:
    export(tmp_path, (0, 0, 1.0), (0, 1, 0.0))
    for step, trained in ((1, []), (2, ["train-g000000-s00"])):
        folder = tmp_path / "checkpoints" / f"step-{step:06d}"
        folder.mkdir(parents=True)
        line = {"step": step, "version": 7, "trained": trained, "dropped": {"train-g000000-s01": "all_stale"}}
        (folder / "ledger.jsonl").write_bytes(orjson.dumps(line) + b"\n{torn")
    assert [(row.state, row.step) for row in everything(caught_up(tmp_path))] == [("trained", 2), ("dropped", 2)]


def test_a_step_number_out_of_range_is_a_damaged_line(tmp_path: Path) -> None:
    export(tmp_path, (0, 0, 1.0))
    TrainedLog(tmp_path).record_step(1, 7, ["train-g000000-s00"], {}, {})
    with (tmp_path / "trained" / "index.jsonl").open("ab") as file:
        for step, version in ((10**19, 8), (2, 10**19)):
            file.write(b'{"step":%d,"t":1,"version":%d,"trajectories":[]}\n' % (step, version))
    catalog = caught_up(tmp_path)
    assert catalog.damaged_lines == 2
    assert [row.step for row in everything(catalog)] == [1]


def test_an_unfinished_line_waits_and_a_damaged_one_is_counted(tmp_path: Path) -> None:
    export(tmp_path, (0, 0, 1.0))
    index = tmp_path / TRAJECTORIES_FOLDER / EXPORT_INDEX
    line = index.read_bytes().replace(b'"sample":0', b'"sample":1').replace(b"-s00", b"-s01")
    catalog = RunCatalog(tmp_path)
    damaged = (b'{"trajectory": 3}\n\xff\xfe\n', b'{"trajectory":"x","group":%d}\n' % (1 << 70))
    for piece in (line[:40], line[40:], *damaged):
        with index.open("ab") as file:
            file.write(piece)
        catalog.poll()
    assert [row.sample for row in everything(catalog)] == [0, 1]
    assert catalog.damaged_lines == 3


def test_absurd_numbers_do_not_break_the_catalog(tmp_path: Path) -> None:
    (tmp_path / TRAJECTORIES_FOLDER).mkdir()
    huge = (1 << 63) - 1
    entry = {"trajectory": "x", "group": 1, "sample": 2, "task": "t", "file": "../x", "status": "?", "reward": 1e308}
    entry |= dict.fromkeys(("offset", "length", "attempt", "tokens", "sampled"), huge)
    (tmp_path / TRAJECTORIES_FOLDER / EXPORT_INDEX).write_bytes(orjson.dumps(entry) + b"\n")
    (row,) = everything(caught_up(tmp_path), sort="longest")
    assert row.reward == 1e308


def test_a_run_recreated_under_the_same_name_is_read_from_its_start(tmp_path: Path) -> None:
    export(tmp_path, (0, 0, 1.0), (0, 1, 0.0))
    catalog = caught_up(tmp_path)
    (tmp_path / TRAJECTORIES_FOLDER / EXPORT_INDEX).unlink()
    export(tmp_path, (5, 0, 1.0))
    while catalog.poll():
        pass
    assert [row.group for row in everything(catalog)] == [5]


def test_steps_have_their_numbers_and_their_version(catalog: RunCatalog) -> None:
    page = list_steps(catalog, PageRequest(limit=1))
    assert page.total == len(catalog.steps.numbers)
    assert page.rows[0].step == newest_step(catalog)
    assert page.rows[0].version == f"1.{page.rows[0].step - 1}"
    rest = list_steps(catalog, PageRequest(limit=100, after=parse_page_cursor(page.next)))
    assert [row.step for row in rest.rows] == catalog.steps.numbers[-2::-1]


# -- lists -------------------------------------------------------------------------------------------------------------

FILTERS = st.builds(
    RowFilter,
    step=st.none() | st.integers(1, 4),
    group=st.none() | st.integers(0, 30),
    states=st.lists(st.sampled_from(list(TrajectoryState)), max_size=2, unique=True),
    statuses=st.lists(st.sampled_from(["completed", "turn_limit", "never"]), max_size=2),
    reasons=st.lists(st.sampled_from(["zero_variance", "all_stale"]), max_size=1),
    task=st.sampled_from(["", "sort", "SORT-0", "nothing"]),
    words=st.sampled_from(["", "s03", "g00001", "count"]),
    reward=st.builds(ValueRange, st.sampled_from([-1.0, 0.25]), st.sampled_from([0.5, 2.0])),
    passed=st.none() | st.booleans(),
)


def keeps(wanted: RowFilter, row: TrajectoryRow) -> bool:
    """The rules of docs/monitor.md, one by one."""
    return all((
        wanted.step is None or row.step == wanted.step,
        wanted.group is None or row.group == wanted.group,
        not wanted.states or row.state in wanted.states,
        not wanted.statuses or row.status in wanted.statuses,
        not wanted.reasons or row.reason in wanted.reasons,
        wanted.task.lower() in row.task.lower(),
        not wanted.words or wanted.words in row.id or wanted.words in row.task,
        wanted.reward.low <= row.reward <= wanted.reward.high,
        wanted.passed is None or row.passed is wanted.passed,
    ))  # fmt: skip


@given(wanted=FILTERS, sort=st.sampled_from(TRAJECTORY_SORTS), limit=st.integers(1, 70))
def test_pages_together_are_the_whole_list_in_order(
    catalog: RunCatalog, wanted: RowFilter, sort: str, limit: int
) -> None:
    seen: list[TrajectoryRow] = []
    after = None
    while True:
        page = list_trajectories(catalog, wanted, PageRequest(sort, limit, after))
        seen += page.rows
        if page.next is None:
            break
        after = parse_page_cursor(page.next)
    expected = [row for row in everything(catalog) if keeps(wanted, row)]
    assert page.total == len(seen) == len(expected)
    assert {row.id for row in seen} == {row.id for row in expected}
    by = {
        "newest": lambda row: (-row.group, -row.sample), "oldest": lambda row: (row.group, row.sample),
        "worst": lambda row: row.reward, "best": lambda row: -row.reward, "longest": lambda row: -row.sampled,
        "shortest": lambda row: row.sampled,
        "logprob_gap": lambda row: -1 if row.logprob_gap is None else -row.logprob_gap - 9,
    }[sort]  # fmt: skip
    assert [by(row) for row in seen] == sorted(by(row) for row in seen)


@pytest.mark.parametrize("sort", TRAJECTORY_SORTS)
def test_rows_added_between_two_pages_repeat_no_row(tmp_path: Path, sort: str) -> None:
    export(tmp_path, *((group, sample, (group * sample % 3) / 2) for group in range(3) for sample in range(4)))
    catalog = caught_up(tmp_path)
    first = list_trajectories(catalog, RowFilter(), PageRequest(sort, 5))
    export(tmp_path, *((group, sample, (group * sample % 3) / 2) for group in range(3, 5) for sample in range(4)))
    catalog.poll()
    rest = list_trajectories(catalog, RowFilter(), PageRequest(sort, 100, parse_page_cursor(first.next)))
    ids = [row.id for row in (*first.rows, *rest.rows)]
    assert len(ids) == len(set(ids))
    old = {f"train-g{group:06d}-s{sample:02d}" for group in range(3) for sample in range(4)}
    assert old <= set(ids)


def test_the_worst_trajectory_of_the_last_step_is_found(catalog: RunCatalog) -> None:
    step = newest_step(catalog)
    (worst,) = list_trajectories(catalog, RowFilter(step=step), PageRequest("worst", 1)).rows
    assert worst.step == step
    assert worst.reward == min(row.reward for row in everything(catalog) if row.step == step)


@pytest.mark.parametrize("sort", GROUP_SORTS)
def test_the_figures_of_a_group_are_those_of_its_members(catalog: RunCatalog, sort: str) -> None:
    found = list_groups(catalog, RowFilter(), PageRequest(sort, 100)).rows
    assert len(found) == COUNT // GROUP_SIZE
    rows = everything(catalog)
    for group in found:
        members = [row for row in rows if row.group == group.group]
        assert (group.arrived, group.size) == (GROUP_SIZE, GROUP_SIZE)
        assert group.reward_mean == pytest.approx(sum(row.reward for row in members) / GROUP_SIZE)
        assert (group.reward_min, group.reward_max) == (min(r.reward for r in members), max(r.reward for r in members))
        assert group.passed == sum(row.passed is True for row in members)
        assert {group.state} == {row.state.value for row in members}
        assert group.opened_at < group.closed_at
    if sort == "spread":
        spreads = [group.reward_max - group.reward_min for group in found]
        assert spreads == sorted(spreads, reverse=True)


def test_groups_are_filtered(catalog: RunCatalog) -> None:
    dropped = list_groups(catalog, RowFilter(reasons=("zero_variance",)), PageRequest(limit=100)).rows
    assert dropped
    assert all(group.state == "dropped" and group.reasons == {"zero_variance": GROUP_SIZE} for group in dropped)
    one = list_groups(catalog, RowFilter(step=1, task="sort"), PageRequest(limit=100))
    assert one.total == len([row for row in one.rows if row.step == 1 and row.task.startswith("sort")]) > 0


def test_a_group_that_waits_for_its_members_is_open(tmp_path: Path) -> None:
    events = EventLog(tmp_path, "buffer", "node-0")
    events.emit("group.opened", group=3, task="t", size=4)
    events.close()
    export(tmp_path, (3, 1, 0.5))
    (found,) = list_groups(caught_up(tmp_path), RowFilter(), PageRequest()).rows
    assert (found.state, found.arrived, found.size, found.closed_at) == ("open", 1, 4, None)


@pytest.mark.parametrize("text", ["", "1", "x:1", "1:x", "nan:1", ":"])
def test_an_invalid_page_cursor_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  float's own words among them
        parse_page_cursor(text)
