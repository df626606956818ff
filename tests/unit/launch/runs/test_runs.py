"""If these fail, a person cannot find a run among many, is told figures that no run has, or loses what was still
needed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from launch import report
from launch.config import RunConfig
from launch.run_records.metrics_log import read_metrics
from launch.run_records.run_directory import RunDirectory
from launch.run_records.run_lock import hold_run_lock
from launch.run_records.stored_config import config_tables, load_resumed_config
from launch.runs.__main__ import COMMAND
from launch.runs.comparison import (
    COMPARED_METRICS,
    build_charts,
    compare_metrics,
    find_config_differences,
    read_compared_runs,
    render_run_comparison,
)
from launch.runs.pruning import DEFAULT_PARTS, PrunablePart, find_prunable, prune_runs
from launch.runs.query import MAX_ROW_BYTES, run_query
from launch.runs.run_list import list_run_rows, read_run_row
from launch.simulate.run_trace import extract_trace
from launch.trajectory_reader.trajectory_lookup import find_trajectory
from protocol.cli.formatting import format_age, format_bytes
from protocol.errors import UserError
from protocol.run_directory.run_status import RunStatus
from tests.support.fakes.fake_run import write_fake_run
from tests.support.runs.attempts import make_attempt
from tests.support.runs.evaluations import write_run_attempts

NOW = 1_900_000_000.0


def make_run(folder: Path, name: str, *, steps: int = 3, finished: bool = True, **changed: object) -> Path:
    path = folder / name
    write_fake_run(path, steps=steps, finished=finished)
    config = RunConfig.model_validate({"run": {"name": "demo", "steps": steps, **changed}})
    (path / "config.json").write_bytes(orjson.dumps({"start_number": 1, "config": config_tables(config)}))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


# -- list ------------------------------------------------------------------------------------------------------------


def test_every_run_has_a_row_with_its_status(folder: Path) -> None:
    make_run(folder, "done")
    failed = make_run(folder, "failed")
    summary = json.loads((failed / "summary.json").read_bytes())
    (failed / "summary.json").write_text(json.dumps(summary | {"ok": False}))
    make_run(folder, "stopped", steps=6, finished=False)
    (make_run(folder, "damaged") / "config.json").write_text("{")
    (folder / "no run").mkdir()
    with RunDirectory.open(make_run(folder, "alive", steps=6, finished=False)):
        found = {line.run: line for line in list_run_rows(folder, NOW)}
    assert {name: line.status for name, line in found.items()} == {
        "done": RunStatus.FINISHED,
        "failed": RunStatus.FAILED,
        "stopped": RunStatus.STOPPED,
        "damaged": RunStatus.DAMAGED,
        "alive": RunStatus.RUNNING,
    }
    line = found["stopped"]
    assert (line.step, line.steps, line.before, line.after) == (4, 6, None, None)
    assert line.pass_rate == read_metrics(folder / "stopped")[-1]["pass_rate"]
    assert found["done"].after is not None
    assert all(line.bytes > 0 and line.age_s > 0 for line in found.values())


def test_a_run_that_has_just_begun_has_a_line(folder: Path) -> None:
    (folder / "new").mkdir()
    (folder / "new" / "config.json").write_bytes(orjson.dumps({"config": config_tables(RunConfig())}))
    line = read_run_row(folder / "new", NOW)
    assert (line.status, line.step, line.pass_rate) == (RunStatus.STOPPED, 0, None)


@pytest.mark.parametrize(
    ("function", "value", "says"),
    [
        (format_bytes, 12.0, "12 B"),
        (format_bytes, 3_400_000.0, "3.2 MiB"),
        (format_bytes, 2.5e12, "2.3 TiB"),
        (format_age, 30.0, "30 s"),
        (format_age, 7200.0, "2 h"),
        (format_age, 3 * 86_400.0, "3 d"),
    ],
)
def test_sizes_and_ages_are_for_people(function: Callable[[float], str], value: float, says: str) -> None:
    assert function(value) == says


# -- compare ---------------------------------------------------------------------------------------------------------


def test_two_runs_of_different_length_share_one_step_axis(folder: Path) -> None:
    compared = read_compared_runs([make_run(folder, "a", steps=3), make_run(folder, "b", steps=5, seed=7)], NOW)
    drawn = {chart.title: chart for chart in build_charts(compared)}
    reward = drawn["Reward"]
    assert list(reward.labels) == ["1", "2", "3", "4", "5"]
    assert [series.label for series in reward.series] == ["a", "b"]
    assert reward.series[0].values[3:] == [None, None]
    assert reward.series[1].values == [step["reward_mean"] for step in read_metrics(folder / "b")]
    assert drawn.keys() <= {figure.title for figure in COMPARED_METRICS}
    lines = {(line.figure, line.run): line for line in compare_metrics(compared)}
    assert lines["Reward", "b"].first == read_metrics(folder / "b")[0]["reward_mean"]
    assert dict(find_config_differences(compared)) == {"run.seed": (0, 7), "run.steps": (3, 5)}


def test_the_page_needs_no_network_and_escapes_run_names(folder: Path) -> None:
    compared = read_compared_runs([make_run(folder, "a"), make_run(folder, "b<script>")], NOW)
    html = render_run_comparison(compared)
    assert "default-src 'none'" in html
    assert "<h1>a and b&lt;script&gt;</h1>" in html
    assert "b<script>" not in html
    assert 'src="http' not in html
    assert 'href="http' not in html


def test_runs_without_a_step_can_be_compared(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "config.json").write_bytes(orjson.dumps({"config": config_tables(RunConfig())}))
    html = render_run_comparison(read_compared_runs([folder / "a", folder / "b"], NOW))
    assert "None of them has taken a step" in html


def test_compare_writes_a_page_and_prints_one_object(folder: Path, capfdbinary: pytest.CaptureFixture) -> None:
    runs = [make_run(folder, "a"), make_run(folder, "b")]
    COMMAND.call(["compare", *map(str, runs), "--json"])
    output = json.loads(capfdbinary.readouterr().out)
    assert Path(output["page"]) == folder / "compare-a-b.html"
    assert Path(output["page"]).read_text().startswith("<!doctype html>")
    assert {line["run"] for line in output["metrics"]} == {"a", "b"}


# -- query -----------------------------------------------------------------------------------------------------------


def ask(sql: str, *runs: Path, most: int = 100) -> list[list[object]]:
    pytest.importorskip("duckdb", reason="DuckDB is not in this environment: make setup")
    return [list(row) for row in run_query(sql, runs, most=most, now=NOW).rows]


def test_the_metrics_table_leaves_out_rolled_back_steps(folder: Path) -> None:
    run = make_run(folder, "a")
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"rewound_to": 1, "t": 0.0}\n')
    assert ask("SELECT run, count(*) FROM metrics GROUP BY run", run) == [["a", 1]]
    assert ask("SELECT step, groups FROM metrics", run) == [[1, 4]]


def test_every_table_can_be_queried_over_several_runs(folder: Path) -> None:
    runs = [make_run(folder, "a"), make_run(folder, "b", steps=2)]
    with RunDirectory.open(runs[0]) as directory:
        write_run_attempts(directory.path, "before", [])
    write_run_attempts(runs[1], "step-000002", [make_attempt("t", versions=(7,))], step=2)
    assert ask("SELECT run, status FROM runs ORDER BY run", *runs) == [["a", "finished"], ["b", "finished"]]
    assert ask("SELECT count(DISTINCT run) FROM events WHERE kind = 'learner.step'", *runs) == [[2]]
    ((name,),) = ask("SELECT line->>'recipe' FROM events WHERE kind = 'run.started' AND run = 'b'", *runs)
    assert name == "demo"
    assert ask("SELECT run, name, step, passed FROM evaluations", *runs) == [["b", "step-000002", 2, True]]
    assert ask("SELECT count(*) FROM metrics JOIN runs USING (run)", *runs) == [[5]]
    assert len(ask("SELECT * FROM metrics", *runs, most=2)) == 2


@pytest.mark.parametrize(
    "sql",
    [
        "SELEC 1",
        "SELECT * FROM no_such_table",
        "COPY (SELECT 1) TO '/tmp/stolen.csv'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SET enable_external_access = true",
        "ATTACH '/tmp/other.db'",
        "INSTALL httpfs",
        "",
        " -- and nothing else",
        "SELECT 1; SELECT 2",
    ],
)
def test_invalid_or_unsafe_queries_are_refused_in_one_line(folder: Path, sql: str) -> None:
    run = make_run(folder, "a", steps=2)
    with pytest.raises(UserError) as refused:
        ask(sql, run)
    assert "\n" not in str(refused.value)


def test_an_error_in_a_query_is_reported_in_plain_words(folder: Path) -> None:
    run = make_run(folder, "a", steps=1)
    with pytest.raises(UserError, match=r"no table 'metrix', but runs, metrics, .*; did you mean 'metrics'"):
        ask("SELECT * FROM metrix", run)
    with pytest.raises(UserError, match="rewrd") as refused:
        ask("SELECT rewrd FROM metrics", run)
    assert "LINE" not in str(refused.value)


def test_a_table_without_rows_says_why_it_has_no_column(folder: Path) -> None:
    fresh = folder / "fresh"
    (fresh / "events").mkdir(parents=True)
    with pytest.raises(UserError, match=r"no row of metrics yet.*pass_rate"):
        ask("SELECT run, max(pass_rate) FROM metrics GROUP BY run", fresh)


def test_lines_that_are_not_events_do_not_affect_a_query(folder: Path) -> None:
    run = make_run(folder, "a", steps=2)
    query = "SELECT count(*) FROM events"
    ((whole,),) = ask(query, run)
    with next((run / "events").glob("*.jsonl")).open("ab") as file:
        file.write(b'0\n[]\n"x"\n{"torn": ')
    assert ask(query, run) == [[whole]]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("events/driver.jsonl", b'{"t": "x", "kind": "run.started"}'),
        ("events/driver.jsonl", b'{"t": {}, "kind": "run.started"}'),
        ("events/driver.jsonl", b'{"t": 1, "kind": "run.started", "deep": ' + b"[" * 300 + b"]" * 300 + b"}"),
        ("events/driver.jsonl", b'{"t": 1, "kind": "' + b"a" * MAX_ROW_BYTES + b'"}'),
        ("metrics.jsonl", b'{"step": 9, "t": 1.0, "note": "' + b"a" * MAX_ROW_BYTES + b'"}'),
        ("metrics.jsonl", b'{"step": 9, "t": "x"}'),
    ],
    ids=lambda value: value.decode()[:20] if isinstance(value, bytes) else value,
)
def test_a_query_leaves_out_and_counts_lines_that_cannot_be_loaded(
    folder: Path, capsys: pytest.CaptureFixture[str], file: str, line: bytes
) -> None:
    run = make_run(folder, "a", steps=2)
    table = file.removesuffix(".jsonl").partition("/")[0]
    query = f"SELECT count(*) FROM {table}"  # noqa: S608  a table of this test
    ((whole,),) = ask(query, run)
    with (run / file).open("ab") as damaged:
        damaged.write(line + b"\n")
    assert ask(query, run) == [[whole]]
    COMMAND.call(["query", query, str(run)])
    assert f"{table}: rows that are damaged or above 16.0 MiB left out: 1" in " ".join(capsys.readouterr().err.split())


def test_a_record_with_invalid_tables_is_damaged(folder: Path) -> None:
    (make_run(folder, "odd") / "config.json").write_bytes(b'{"config": {"run": 3}}')
    assert [line.status for line in list_run_rows(folder, NOW)] == [RunStatus.DAMAGED]
    with pytest.raises(UserError, match="not a run's record"):
        read_compared_runs([make_run(folder, "whole"), folder / "odd"], NOW)


def test_without_duckdb_a_query_says_how_to_install_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(UserError, match="make setup"):
        run_query("SELECT 1", [], most=1, now=NOW)


# -- prune -----------------------------------------------------------------------------------------------------------


def write(path: Path, size: int = 5000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


@pytest.fixture
def full(folder: Path) -> Path:
    """A run with something of every part."""
    run = make_run(folder, "full")
    for version in ("v0001", "v0002", "v0003"):
        write(run / "weights" / version / "model.safetensors")
    write(run / "weights" / ".v0004.partial" / "model.safetensors")
    write(run / "checkpoints" / "step-000004.torn" / "learner" / "shard")
    write(run / "checkpoints" / "step-000005.unfinished" / "learner" / "shard")
    write(run / "copies" / "node-1" / "v0003")
    write(run / "starts" / "1" / "logs" / "ray.log")
    write(run / "trajectories" / "trajectories-00001.bin")
    return run


def files(run: Path) -> set[str]:
    return {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}


def test_a_dry_run_of_prune_lists_parts_with_sizes_and_removes_nothing(full: Path) -> None:
    before = files(full)
    gone, busy = prune_runs([full], set(PrunablePart), dry_run=True)
    assert files(full) - {".lock"} == before
    assert busy == []
    by_part = {each.part: each for each in gone}
    assert set(by_part) == set(PrunablePart) - {PrunablePart.CHECKPOINTS}
    assert by_part[PrunablePart.LEFTOVERS].bytes >= 4 * 5000
    assert by_part[PrunablePart.RUN].bytes > by_part[PrunablePart.WEIGHTS].bytes >= 2 * 5000


def test_prune_removes_only_unneeded_parts_by_default(full: Path) -> None:
    before = files(full)
    prune_runs([full], DEFAULT_PARTS, dry_run=False)
    gone = before - files(full)
    assert all(name.startswith(("weights/", "copies/", "checkpoints/")) for name in gone)
    assert [path.name for path in (full / "weights").iterdir()] == ["v0003"]
    assert [each for each in find_prunable(full) if each.part in DEFAULT_PARTS] == []


def test_prune_removes_nothing_of_another_run(full: Path) -> None:
    """Through a link in a run that somebody sent, whose newest version would be the only one left."""
    sent = full.with_name("sent")
    write(sent / "config.json")
    (sent / "weights").symlink_to(full / "weights")
    before = files(full)
    with pytest.raises(UserError, match="sent/weights is a link to"):
        prune_runs([full, sent], DEFAULT_PARTS, dry_run=False)
    assert files(full) == before


def test_prune_leaves_a_run_with_a_driver_alone(full: Path) -> None:
    with RunDirectory.open(full):
        before = files(full)
        gone, busy = prune_runs([full], set(PrunablePart), dry_run=False)
        assert (gone, busy) == ([], ["full"])
        assert files(full) == before


def test_a_run_cannot_be_opened_while_it_is_pruned(full: Path) -> None:
    with hold_run_lock(full), pytest.raises(UserError, match="is in use by process"):
        RunDirectory.open(full)


def test_a_whole_run_is_pruned_only_if_it_is_named_and_old_enough(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(full.parent)
    with pytest.raises(UserError, match="name them"):
        COMMAND.call(["prune", "--what", "run"])
    with pytest.raises(UserError, match="the parts are"):
        COMMAND.call(["prune", str(full), "--what", "everything"])
    COMMAND.call(["prune", str(full), "--what", "run", "--older-than", "10000"])
    assert full.exists()
    COMMAND.call(["prune", str(full), "--what", "run"])
    assert not full.exists()


@pytest.mark.parametrize(
    "words", [["list", "/nowhere"], ["compare", "/nowhere", "/nowhere"], ["prune", "/nowhere"], ["compare", "/nowhere"]]
)
def test_a_missing_run_is_a_user_error(words: list[str]) -> None:
    with pytest.raises(UserError, match=r"nowhere|2 to"):
        COMMAND.call(words)


def test_a_run_with_a_pipe_in_a_files_place_keeps_no_other_from_the_list(tmp_path: Path) -> None:
    """Whoever opens a pipe to read waits until somebody writes to it."""
    make_run(tmp_path, "good")
    sent = make_run(tmp_path, "sent")
    (sent / "summary.json").unlink()
    os.mkfifo(sent / "summary.json")
    assert {row.run: row.status for row in list_run_rows(tmp_path)} == {
        "good": RunStatus.FINISHED,
        "sent": RunStatus.DAMAGED,
    }
    for use in (
        lambda: report.COMMAND.call([str(sent)]),
        lambda: COMMAND.call(["query", "select * from runs", str(sent)]),
        lambda: load_resumed_config(sent, ()),
        lambda: find_trajectory(f"{sent}/train-g000000-s00"),
        lambda: extract_trace(sent),
    ):
        with pytest.raises(UserError, match=r"summary\.json is a pipe"):
            use()
