"""If these fail, a table says of a sweep what nobody measured."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from launch.sweep.axes import parse_axis
from launch.sweep.definition import SweepFile, build_sweep
from launch.sweep.sweep_points import read_last_line
from launch.sweep.sweep_table import (
    PointResult,
    PointState,
    SweepTable,
    average_rows,
    point_rows,
    render_sweep_page,
    table_as_csv,
    table_as_json,
)
from launch.sweep.training_points import COLUMNS
from protocol.cli.output import align_columns

FILE = SweepFile(about="a <b>", goal={"difference": 0.3})


def ended(difference: float) -> PointResult:
    figures = {"before": 0.4, "after": 0.4 + difference, "difference": difference, "steps": 20, "seconds": 500.0}
    return PointResult(PointState.ENDED, "", figures, "c0ffee")


FAILED = PointResult(PointState.FAILED, "no <space> left")


def table(*outcomes: PointResult, axes: Sequence[str] = ("learner.loss=clip,gspo", "run.seed=0,1")) -> SweepTable:
    sweep = build_sweep("s", FILE, {"staleness.max_staleness": 4}, [parse_axis(axis) for axis in axes])
    return SweepTable(sweep, Path("/s"), COLUMNS, list(zip(sweep.points, outcomes, strict=True)))


MIXED = (ended(0.5), ended(0.3), ended(0.1), FAILED)


def test_means_are_over_seeds_alone() -> None:
    first, second = table(*MIXED).averages
    assert (first.at, first.ended, len(first.rows)) == ({"learner.loss": "clip"}, 2, 2)
    assert first.statistics("difference") == {"mean": 0.4, "std": 0.1414, "n": 2}
    assert (second.ended, second.statistics("difference")) == (1, {"mean": 0.1, "std": None, "n": 1})
    assert first.statistics("staleness_mean") is None


def test_without_seeds_there_is_nothing_to_average() -> None:
    found = table(ended(0.5), ended(0.3), axes=["learner.loss=clip,gspo"])
    assert found.averages == []
    assert "Over seeds" not in render_sweep_page(found)


def test_the_goal_is_each_points() -> None:
    found = table(*MIXED)
    assert found.missed == ["gspo-seed0"]
    assert found.verdict == "3 of 4 points, 1 failed, goal missed by 1"
    assert not found.ok
    assert table(*[ended(0.3)] * 4).ok


def test_a_point_that_ended_without_the_goals_figure_has_missed_it() -> None:
    """Its evaluation before training is another model's, say: nothing was shown, and the command would say all held."""
    unknown = PointResult(PointState.ENDED, "", {"after": 0.9}, "c0ffee")
    found = table(ended(0.3), ended(0.4), unknown, PointResult(PointState.PLANNED))
    assert found.missed == ["gspo-seed0"]


def test_what_is_not_known_is_left_empty() -> None:
    rows = list(csv.DictReader(io.StringIO(table_as_csv(table(*MIXED)))))
    assert [row["point"] for row in rows] == ["clip-seed0", "clip-seed1", "gspo-seed0", "gspo-seed1"]
    assert rows[0]["difference"] == "0.5"
    assert (rows[0]["learner.loss"], rows[0]["run.seed"], rows[0]["commit"]) == ("clip", "0", "c0ffee")
    assert (rows[3]["difference"], rows[3]["state"], rows[3]["why"]) == ("", "failed", "no <space> left")


def test_the_object_has_every_point_and_mean() -> None:
    found = table(*MIXED)
    text = json.loads(json.dumps(table_as_json(found)))
    assert (text["ok"], text["complete"]) == (False, False)
    assert text["points"][0]["values"]["difference"] == 0.5
    assert text["points"][3]["values"]["difference"] is None
    assert text["points"][3]["why"] == "no <space> left"
    assert text["over_seeds"][0]["values"]["difference"] == {"mean": 0.4, "std": 0.1414, "n": 2}
    assert (text["goal"], text["missed"]) == ({"difference": 0.3}, ["gspo-seed0"])
    assert text["points"][0]["folder"] == "/s/runs/s-clip-seed0"


def test_the_page_has_points_means_goal_and_failures_as_text() -> None:
    text = render_sweep_page(table(*MIXED))
    for part in ("Over seeds", "0.400 ± 0.141", "missed by gspo-seed0", "no &lt;space&gt; left"):
        assert part in text
    assert "a &lt;b&gt;" in text
    assert "<b>" not in text.replace("<body", "")


def test_lines_stand_below_each_other() -> None:
    lines = align_columns(average_rows(table(*MIXED)))
    assert len({len(line) for line in lines}) == 1
    head, first, *_, last = point_rows(table(*MIXED))
    assert (first[head.index("difference")], last[head.index("difference")]) == ("+0.500", "–")


def test_a_runs_last_word_is_its_last_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert read_last_line(log) == ""
    log.write_text("x" * 20_000 + "\nstep 1\nerror: no Docker engine answers\n\n")
    assert read_last_line(log) == "no Docker engine answers"
