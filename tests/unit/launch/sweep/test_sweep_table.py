"""If these fail, a table says of a sweep what nobody measured."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from launch.sweep.definition import SweepFile, build_sweep, parse_axis
from launch.sweep.sweep_table import (
    PointResult,
    PointState,
    SeedStatistics,
    SweepTable,
    average_rows,
    point_rows,
    render_sweep_page,
    table_as_csv,
    table_as_json,
)
from launch.sweep.training_points import METRICS
from protocol.cli.output import align_columns

FILE = SweepFile(about="a <b>", goal={"difference": 0.3})


def ended(difference: float) -> PointResult:
    values = {"before": 0.4, "after": 0.4 + difference, "difference": difference, "steps": 20, "seconds": 500.0}
    return PointResult(PointState.ENDED, values=values, commit="c0ffee")


def table(*results: PointResult, axes: tuple[str, ...] = ("learner.loss=clip,gspo", "run.seed=0,1")) -> SweepTable:
    sweep = build_sweep(FILE, "", {"staleness.max_staleness": 4}, [*map(parse_axis, axes)], Path("/s"))
    names = [point.name for point in sweep.points]
    return SweepTable(sweep, tuple(METRICS), dict(zip(names, results, strict=True)))


MIXED = (ended(0.5), ended(0.3), ended(0.1), PointResult(PointState.FAILED, "no <space> left"))


def test_means_are_over_seeds_alone() -> None:
    first, second = table(*MIXED).averages
    assert (first.axes, first.ended, first.of) == ({"learner.loss": "clip"}, 2, 2)
    assert first.values["difference"] == SeedStatistics(0.4, 0.1414, 2)
    assert (second.ended, second.values["difference"]) == (1, SeedStatistics(0.1, None, 1))
    assert "staleness_mean" not in first.values


def test_without_seeds_there_is_nothing_to_average() -> None:
    found = table(ended(0.5), ended(0.3), axes=("learner.loss=clip,gspo",))
    assert (found.averages, average_rows(found)) == ([], [])
    assert "Over seeds" not in render_sweep_page(found)


def test_the_goal_applies_to_each_point() -> None:
    found = table(*MIXED)
    assert found.missed == ["gspo-seed0"]
    assert found.verdict == "3 of 4 points, 1 failed, goal missed by 1"
    assert [found.succeeded([point]) for point in found.sweep.points] == [True, True, False, False]


def test_a_point_that_ended_without_the_goals_metric_has_missed_it() -> None:
    """Its evaluation before training is another model's, say: nothing was shown, and the command would say all held."""
    unknown = PointResult(PointState.ENDED, values={"after": 0.9})
    found = table(ended(0.3), ended(0.4), unknown, PointResult(PointState.PLANNED))
    assert found.missed == ["gspo-seed0"]


def test_unknown_values_are_left_empty() -> None:
    rows = list(csv.DictReader(io.StringIO(table_as_csv(table(*MIXED)))))
    assert [row["point"] for row in rows] == ["clip-seed0", "clip-seed1", "gspo-seed0", "gspo-seed1"]
    assert rows[0]["difference"] == "0.5"
    assert (rows[0]["learner.loss"], rows[0]["run.seed"], rows[0]["commit"]) == ("clip", "0", "c0ffee")
    assert (rows[3]["difference"], rows[3]["state"], rows[3]["why"]) == ("", "failed", "no <space> left")


def test_the_object_has_every_point_and_mean() -> None:
    found = json.loads(json.dumps(table_as_json(table(*MIXED))))
    assert (found["ok"], found["complete"], found["goal"]) == (False, False, {"difference": 0.3})
    assert found["missed"] == ["gspo-seed0"]
    first, *_, last = found["points"]
    assert (first["name"], first["folder"]) == ("clip-seed0", "/s/runs/s-clip-seed0")
    assert first["settings"] == {"learner.loss": "clip", "run.seed": 0}
    assert (first["state"], first["values"]["difference"], first["values"]["staleness_max"]) == ("ended", 0.5, None)
    assert (last["values"]["difference"], last["why"]) == (None, "no <space> left")
    assert found["over_seeds"][0]["values"]["difference"] == {"mean": 0.4, "std": 0.1414, "n": 2}


def test_the_page_has_points_means_goal_and_failures_as_text() -> None:
    text = render_sweep_page(table(*MIXED))
    for part in ("Over seeds", "0.400 ± 0.141", "missed by gspo-seed0", "no &lt;space&gt; left", "a &lt;b&gt;"):
        assert part in text
    assert "<b>" not in text.replace("<body", "")


def test_columns_of_the_text_table_are_aligned() -> None:
    lines = align_columns(average_rows(table(*MIXED)))
    assert len({len(line) for line in lines}) == 1
    head, first, *_, last = point_rows(table(*MIXED))
    assert (first[head.index("difference")], last[head.index("difference")]) == ("+0.500", "–")
