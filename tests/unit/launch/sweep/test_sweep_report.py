"""If these fail, a table says of a sweep what nobody measured."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from launch.sweep.axes import parse_axis
from launch.sweep.definition import SweepFile, build_sweep
from launch.sweep.point_results import PointResult, PointRow, PointState, SeedStatistics
from launch.sweep.run_logs import read_last_line
from launch.sweep.run_results import COLUMNS
from launch.sweep.sweep_page import render_sweep_page
from launch.sweep.sweep_table import (
    SweepTable,
    align_columns,
    average_rows,
    point_rows,
    table_as_csv,
    table_as_json,
    table_as_markdown,
)

FILE = SweepFile(about="a <b>", goal={"difference": 0.3})


def ended(difference: float) -> PointResult:
    figures = {"before": 0.4, "after": 0.4 + difference, "difference": difference, "steps": 20, "seconds": 500.0}
    return PointResult(PointState.ENDED, "", figures, "c0ffee")


FAILED = PointResult(PointState.FAILED, "no <space> left")


def table(*outcomes: PointResult, axes: Sequence[str] = ("learner.loss=clip,gspo", "run.seed=0,1")) -> SweepTable:
    sweep = build_sweep("s", FILE, {"staleness.max_staleness": 4}, [parse_axis(axis) for axis in axes])
    rows = [PointRow(point, outcome) for point, outcome in zip(sweep.points, outcomes, strict=True)]
    return SweepTable(sweep, COLUMNS, rows, "2 cores")


MIXED = (ended(0.5), ended(0.3), ended(0.1), FAILED)


def test_means_are_over_seeds_alone() -> None:
    first, second = table(*MIXED).averages
    assert (first.at, first.ended, first.of) == ({"learner.loss": "clip"}, 2, 2)
    assert first.spreads["difference"].mean == pytest.approx(0.4)
    assert first.spreads["difference"].std == pytest.approx(0.02**0.5)
    assert (second.ended, second.of, second.spreads["difference"]) == (1, 2, SeedStatistics(0.1, None, 1))
    assert "staleness_mean" not in first.spreads


def test_without_seeds_there_is_nothing_to_average() -> None:
    found = table(ended(0.5), ended(0.3), axes=["learner.loss=clip,gspo"])
    assert found.averages == []
    assert "Over seeds" not in render_sweep_page(found)


def test_the_goal_is_each_points() -> None:
    found = table(*MIXED)
    assert (found.goal.met, found.goal.missed) == (("clip-seed0", "clip-seed1"), ("gspo-seed0",))
    assert found.verdict == "3 of 4 points, 1 failed, the goal missed by 1"
    assert not found.holds
    assert table(*[ended(0.3)] * 4).holds


def test_a_point_that_ended_without_the_goals_figure_has_missed_it() -> None:
    """Its evaluation before training is another model's, say: nothing was shown, and the command would say all held."""
    unknown = PointResult(PointState.ENDED, "", {"after": 0.9}, "c0ffee")
    found = table(ended(0.3), ended(0.4), unknown, PointResult(PointState.PLANNED))
    assert found.goal.missed == ("gspo-seed0",)


def test_what_is_not_known_is_left_empty() -> None:
    rows = list(csv.DictReader(io.StringIO(table_as_csv(table(*MIXED)))))
    assert [row["point"] for row in rows] == ["clip-seed0", "clip-seed1", "gspo-seed0", "gspo-seed1"]
    assert rows[0]["difference"] == "0.5"
    assert (rows[0]["learner.loss"], rows[0]["run.seed"], rows[0]["commit"]) == ("clip", "0", "c0ffee")
    assert (rows[3]["difference"], rows[3]["state"], rows[3]["why"]) == ("", "failed", "no <space> left")


def test_the_object_has_every_point_and_mean() -> None:
    found = table(*MIXED)
    said = table_as_json(found, lambda point: Path("/s") / point.name)
    text = json.loads(json.dumps(said))
    assert (text["ok"], text["complete"]) == (False, False)
    assert text["points"][0]["figures"]["difference"] == 0.5
    assert text["points"][3]["figures"]["difference"] is None
    assert text["points"][3]["why"] == "no <space> left"
    assert text["over_seeds"][0]["figures"]["difference"] == {"mean": 0.4, "std": 0.1414, "n": 2}
    assert text["goal"] == {
        "least": {"difference": 0.3}, "met": ["clip-seed0", "clip-seed1"], "missed": ["gspo-seed0"]
    }  # fmt: skip


def test_the_page_has_points_means_goal_and_failures_as_text() -> None:
    text = render_sweep_page(table(*MIXED))
    for part in ("Over seeds", "0.400 ± 0.141", "met by 2 of 4, missed by gspo-seed0", "no &lt;space&gt; left"):
        assert part in text
    assert "a &lt;b&gt;" in text
    assert "<b>" not in text.replace("<body", "")


def test_the_tables_for_documentation_say_where_and_of_what_code() -> None:
    text = table_as_markdown(table(*MIXED))
    assert text.startswith("`longshore sweep s`, commit c0ffee, on 2 cores.\n")
    assert "| clip | 2 of 2 | 0.400 ± 0.000 |" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows[:4]} == {len(COLUMNS) + 3}


def test_lines_stand_below_each_other() -> None:
    head, rows = average_rows(table(*MIXED))
    lines = align_columns(head, rows)
    assert len({len(line) for line in lines}) == 1
    head, rows = point_rows(table(*MIXED))
    assert rows[0][head.index("difference")] == "+0.500"
    assert rows[3][head.index("difference")] == "–"


def test_a_runs_last_word_is_its_last_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert read_last_line(log) == ""
    log.write_text("x" * 20_000 + "\nstep 1\nerror: no Docker engine answers\n\n")
    assert read_last_line(log) == "no Docker engine answers"
