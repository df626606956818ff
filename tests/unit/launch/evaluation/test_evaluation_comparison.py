"""If these fail, a model is called better that is not, or evaluations are compared that have nothing in common."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from launch.evaluation.compare import COMMAND
from launch.evaluation.comparison.compared_evaluation import open_evaluations
from launch.evaluation.comparison.comparison_tables import comparison_as_json, comparison_lines
from launch.evaluation.comparison.evaluation_comparison import compare_evaluations
from launch.evaluation.comparison.paired_tasks import TaskPair, fisher_exact_p, pair_tasks
from launch.evaluation.held_out.evaluation_store import finish_evaluation, store_pending_evaluation
from launch.evaluation.results.evaluation_folder import EvaluationSpec, check_evaluation_folder
from launch.evaluation.scores import TaskTally
from protocol.cli.exit_codes import EXIT_OK, EXIT_USER, main_guard
from protocol.errors import UserError
from protocol.evaluation import AttemptId
from protocol.run_directory.terminal_recordings import CastWriter
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.support.pages.standalone_pages import outside_urls, without_packages
from tests.support.runs.attempts import make_attempt
from tests.support.runs.evaluations import SPEC, record_terminal, write_evaluation, write_run_attempts
from tests.support.runs.recorded_trajectories import make_run_config, write_run

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
BEFORE: dict[str, list[bool | None]] = {"a": [False] * 4, "b": [True] * 4, "c": [True, False, True, False], "d": [True]}
AFTER: dict[str, list[bool | None]] = {"a": [True] * 4, "b": [True] * 4, "c": [True, False, False, None], "e": [True]}

tally = st.integers(1, 12).flatmap(lambda n: st.builds(TaskTally, st.just(n), st.integers(0, n)))
tallies = st.dictionaries(st.sampled_from("abcdefgh"), tally, min_size=1)


@settings(max_examples=20)
@given(tallies, tallies)
def test_a_difference_covers_the_common_tasks_and_changes_its_sign_with_the_order(
    first: dict[str, TaskTally], other: dict[str, TaskTally]
) -> None:
    there, back = pair_tasks(first, other), pair_tasks(other, first)
    assert [pair.task for pair in there.pairs] == sorted(first.keys() & other.keys())
    assert (there.better, there.worse) == (back.worse, back.better)
    assert (set(there.only_first), set(there.only_other)) == (set(first) - set(other), set(other) - set(first))
    for k, at in there.at_k.items():
        assert at.difference == pytest.approx(-back.at_k[k].difference)
        assert at.low - 1e-9 <= at.difference <= at.high + 1e-9 or at.tasks > 1
        assert -1 <= at.low <= at.high <= 1
    if there.pairs:
        mean = sum(pair.difference for pair in there.pairs) / len(there.pairs)
        assert there.at_k[1].difference == pytest.approx(mean)


@given(tally, tally)
def test_the_p_value_is_that_of_fishers_exact_test(first: TaskTally, other: TaskTally) -> None:
    table = [[each.passed, each.attempts - each.passed] for each in (first, other)]
    assert fisher_exact_p(first, other) == pytest.approx(cast("Any", fisher_exact)(table).pvalue, abs=1e-9)


def test_an_equal_shift_of_every_task_has_an_interval_without_width() -> None:
    """Tasks differ, and the pairing takes that out: unpaired, this interval would span half of all."""
    first = {f"t{n}": TaskTally(4, n % 4) for n in range(16)}
    other = {task: TaskTally(4, each.passed + 1) for task, each in first.items()}
    at = pair_tasks(first, other).at_k[1]
    assert (at.difference, at.low, at.high, at.tasks) == pytest.approx((0.25, 0.25, 0.25, 16))


def test_changed_tasks_are_ordered_by_significance() -> None:
    first = {"little": TaskTally(8, 4), "same": TaskTally(8, 4), "much": TaskTally(8, 0)}
    other = {"little": TaskTally(8, 5), "same": TaskTally(4, 2), "much": TaskTally(8, 8)}
    assert [pair.task for pair in pair_tasks(first, other).changes] == ["much", "little"]
    assert TaskPair("much", first["much"], other["much"]).p < 0.001


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    return [
        str(write_evaluation(tmp_path / "v1", BEFORE)),
        str(write_evaluation(tmp_path / "v2", AFTER, model_name="v2")),
        str(write_evaluation(tmp_path / "v3", BEFORE, model_name="v3", recorded=False)),
    ]


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a refusal."""
    assert main_guard(lambda: COMMAND.call(words)) == EXIT_USER
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_errors_are_counted_separately_and_tasks_of_only_one_evaluation_are_named(folders: list[str]) -> None:
    comparison = compare_evaluations(open_evaluations(folders[:2]))
    value = json.loads(json.dumps(comparison_as_json(comparison)))
    (other,) = value["others"]
    assert (other["tasks"], other["better"], other["worse"], other["same"]) == (3, 1, 1, 1)
    assert (other["only_first"], other["only_other"], other["errors"]) == (["d"], ["e"], 1)
    assert other["pass_at_k"]["1"]["difference"] == pytest.approx((1 + 0 + 1 / 3 - 1 / 2) / 3)
    assert other["pass_at_k"]["4"]["tasks"] == 2
    assert [(each["task"], each["other"]) for each in other["changed"]] == [
        ("a", {"attempts": 4, "passed": 4}),
        ("c", {"attempts": 3, "passed": 1}),
    ]
    assert value["tasks"]["c"] == {"v1": {"attempts": 4, "passed": 2}, "v2": {"attempts": 3, "passed": 1}}
    assert list(value["tasks"]["e"]) == ["v2"]
    notices = "\n".join(other["notices"])
    assert "v2 has 1 attempts without a verdict" in notices
    assert "1 tasks have a verdict only in v1 and are left out: d" in notices
    assert "intervals over 3 tasks are too narrow" in notices


def test_several_models_are_compared_as_a_matrix_against_the_first(folders: list[str]) -> None:
    """Equivalent of ART's ``compare_models``."""
    text = [*comparison_lines(compare_evaluations(open_evaluations(folders)))]
    head, first, second, third = (line.split() for line in text[:4])
    assert head[:3] == ["evaluation", "model", "pass@1"]
    assert [first[:2], second[:2], third[:2]] == [["v1", "v1"], ["v2", "v2"], ["v3", "v3"]]
    assert "+0.0" in third


def test_folders_with_the_same_name_are_distinguished_by_path(tmp_path: Path) -> None:
    names = [str(write_evaluation(tmp_path / when / "v1", BEFORE)) for when in ("monday", "friday")]
    assert [side.name for side in open_evaluations(names)] == names


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ({"tasks_checksum": "xyz"}, r"v1 and v2 are of different data sets \(tasks has changed in between\): "),
        ({"tasks_checksum": "xyz", "tasks": "seta"}, r"are of different data sets \(tasks, seta\): "),
        ({"greedy": True}, r"sampled differently \(temperature 1.0, greedy\): .*--anyway"),
        ({"temperature": 0.5}, r"sampled differently \(temperature 1.0, temperature 0.5\)"),
    ],
)
def test_different_tasks_or_sampling_are_refused_unless_anyway_is_given(
    tmp_path: Path, what: dict[str, Any], says: str
) -> None:
    names = [str(write_evaluation(tmp_path / "v1", BEFORE)), str(write_evaluation(tmp_path / "v2", AFTER, **what))]
    with pytest.raises(UserError, match=says):
        compare_evaluations(open_evaluations(names))
    (notice,) = compare_evaluations(open_evaluations(names), anyway=True).notices
    assert "they are compared --anyway" in notice


def test_comparing_with_an_oracle_ignores_sampling_and_names_differences_of_the_agent(tmp_path: Path) -> None:
    names = [
        str(write_evaluation(tmp_path / "v1", BEFORE)),
        str(write_evaluation(tmp_path / "oracle", AFTER, solver="oracle", greedy=True, recipe={"agent.kind": "json"})),
    ]
    (against,) = compare_evaluations(open_evaluations(names)).others
    assert "they differ in agent.kind (bash, json), agent.max_turns (4, None), beside the model" in against.notices


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{0}"], "alone has nothing to compare with"),
        (["{0}", "{0}/"], "is named twice"),
        (["{0}", "/nowhere"], "/nowhere is not an evaluation: give the folder"),
        (["{0}", "{1}", "--output", "/proc/x/y.html"], "cannot write /proc/x/y.html"),
        (
            ["{0}", "{1}", "--terminals", "-1"],
            "--terminals: must be at least 0, not '-1'",
        ),
    ],
)
def test_evaluations_that_cannot_be_compared_are_refused(
    folders: list[str], words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refusal(capsys, *(word.format(*folders) for word in words))


def test_evaluations_without_common_tasks_are_refused_even_with_anyway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (write_evaluation(tmp_path / name, {name: [True]}) for name in "xy")
    assert "have no task with a verdict in common" in refusal(capsys, str(one), str(two), "--anyway")


def page_of(folders: list[str], tmp_path: Path, *words: str) -> tuple[str, list[list[dict[str, Any]]]]:
    file = tmp_path / "page.html"
    assert COMMAND.call([*folders, "--output", str(file), *words]) == EXIT_OK
    page = file.read_text()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data
    return page, json.loads(data[1])["terminals"]


def test_the_page_has_both_terminals_of_each_task_that_changed(folders: list[str], tmp_path: Path) -> None:
    page, terminals = page_of(folders[:2], tmp_path)
    shown = [["".join(text for _, text in side["events"]) for side in pair] for pair in terminals]
    assert [("a 0 False" in first, "a 0 True" in other) for first, other in shown[:1]] == [(True, True)]
    assert [("c 0 True" in first, "c 1 False" in other) for first, other in shown[1:]] == [(True, True)]
    assert page.count('class="pair"') == 2
    assert "<td>e</td><td>-</td><td>1 of 1</td>" in page
    assert page_of(folders[:2], tmp_path, "--terminals", "1")[1] == terminals[:1]


def test_the_recorded_terminal_is_shown_if_the_other_side_was_not_recorded(folders: list[str], tmp_path: Path) -> None:
    (pair, _) = page_of([folders[2], folders[1]], tmp_path)[1]
    assert [bool(side["events"]) for side in pair] == [False, True]


def test_the_page_needs_no_network_and_runs_no_code_from_a_sandbox(folders: list[str], tmp_path: Path) -> None:
    record_terminal(Path(folders[0]), AttemptId("a", 0), HOSTILE)
    page = without_packages(page_of(folders, tmp_path)[0])
    assert outside_urls(page) == []
    assert not re.search(r"@import|url\(", page)
    assert "default-src 'none'" in page
    assert page.count("<script") == 2
    assert "<img src=x" not in page
    assert "alert(1)" in page


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to parse the script")
def test_the_script_of_the_page_parses(folders: list[str], tmp_path: Path) -> None:
    script = re.search(r'<script type="module">(.*?)</script>', page_of(folders, tmp_path)[0], re.DOTALL)
    assert script
    (tmp_path / "bundle.mjs").write_text(script[1])
    done = subprocess.run(["node", "--check", tmp_path / "bundle.mjs"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_evaluations_within_a_run_are_compared_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "runs" / "demo-1", make_run_config(), [])
    for name, passed in (("before", False), ("after", True)):
        attempts = [
            make_attempt(
                task,
                passed=passed or task == "t1",
                number=number,
                greedy=number == 2,
                recording=f"{name}-g00000{group}-s0{number}-a0",
            )
            for group, task in enumerate(("t0", "t1"))
            for number in range(3)
        ]
        write_run_attempts(run, name, attempts)
        with CastWriter.open(run / "terminals" / f"{name}-g000000-s01-a0.cast") as cast:
            cast.record_output("x")
    monkeypatch.chdir(tmp_path)
    comparison = compare_evaluations(open_evaluations(["runs/demo-1/before", "demo-1"]))
    (after,) = comparison.others
    assert [side.name for side in comparison.evaluations] == ["demo-1/before", "demo-1/after"]
    assert (after.paired.at_k[1].difference, len(after.evaluation.records)) == (0.5, 4)
    assert list(after.evaluation.recordings) == [AttemptId("t0", 1)]
    with pytest.raises(UserError, match=r"no evaluation 'later': name one of runs/demo-1/after, runs/demo-1/before"):
        open_evaluations(["runs/demo-1/later"])


def test_an_online_evaluation_is_compared_by_its_step(tmp_path: Path) -> None:
    """The newest of the step counts: an older one is of weights that were rolled back."""
    run = write_run(tmp_path / "demo-1", make_run_config(), [])
    for version, step, passed in ((3, 4, True), (5, 8, True), (9, 4, False)):
        weights = tmp_path / f"weights-{version}"
        weights.mkdir()
        manifest = WeightManifest(WeightVersion(version), step, NO_VERSION, str(weights), "", 0, 0)
        store_pending_evaluation(run, EvaluationSpec(solver="run"), manifest)
        finish_evaluation(run, manifest.version, [make_attempt(task, passed=passed) for task in ("t0", "t1")])
    early, late = open_evaluations([f"{run}/step-000004", f"{run}/step-000008"])
    assert [tally.passed for tally in early.tallies.values()] == [0, 0]
    assert [tally.passed for tally in late.tallies.values()] == [1, 1]
    with pytest.raises(UserError, match=r"name one of \S+/step-000004, \S+/step-000008"):
        open_evaluations([f"{run}/after"])


@pytest.mark.parametrize("place", ["evaluation.json", "attempts.jsonl"])
def test_an_evaluation_with_a_pipe_in_a_files_place_is_refused(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens a pipe to read waits until somebody writes to it."""
    monkeypatch.chdir(tmp_path)
    sent = write_evaluation(Path("evaluations/sent"), BEFORE, recorded=False)
    (sent / place).unlink()
    os.mkfifo(sent / place)
    with pytest.raises(UserError, match=r"sent is not an evaluation|is a pipe"):
        open_evaluations(["sent"])
    with pytest.raises(UserError, match=f"{place} is a pipe"):
        check_evaluation_folder(sent, SPEC)
