"""If this fails, the figures in ``summary.json`` are not what happened, or a run cannot be trained again."""

from __future__ import annotations

import json
import re
import statistics
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest

from actors.tokens.chat_format import ChatFormat, load_tokenizer
from launch.data.sft_examples import SequenceSelection, read_examples
from launch.evaluation.results.evaluation_folder import read_attempt_records
from launch.monitor.archive.activity import read_activity
from launch.monitor.archive.query import PageRequest, RowFilter, list_trajectories
from launch.monitor.archive.token_pages import read_token_page
from launch.monitor.run_follower import RunFollower
from launch.settings.data import OverlongAction
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.trajectory import is_training_trajectory
from tests.support.commands import run_json
from tests.support.runs.cluster_runs import MiniRun, MiniRuns, eventually, replay_summary
from tests.support.runs.trajectory_accounting import (
    assert_accounting_balances,
    last_checkpoint,
    read_json,
    read_ledger,
    read_lines,
    token_staleness,
)

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang]

STEPS, BATCH = 3, 16
EVERYTHING = SequenceSelection(
    vocabulary=1 << 20, max_tokens=1 << 20, overlong=OverlongAction.ERROR, min_score=None, reward_weighted=False
)


class PageObservations(NamedTuple):
    """What the page showed while the run went on."""

    page: str
    state: dict[str, Any]
    terminal: str
    """The first messages of an episode's terminal, as they were streamed."""


class FinishedWholeRun(NamedTuple):
    run: MiniRun
    summary: dict[str, Any]
    watched: PageObservations


@pytest.fixture(scope="module")
def done(mini_runs: MiniRuns) -> FinishedWholeRun:
    """Steps that go far, and rollout that runs ahead of them: the clip has work for certain."""
    run = mini_runs.start("whole", "--set", "learner.lr=1e-2", "--set", "monitor.enabled=true")
    watched = watch(run)
    return FinishedWholeRun(run, run.succeed(), watched)


def watch(run: MiniRun) -> PageObservations:
    url = run.wait_event("the page's address", "run.started")["url"]
    trajectory = run.wait_event("an episode", "episode.started")["trajectory"]
    run.wait_step(1)
    state = eventually("a step on the page", lambda: with_a_step(url))
    with opened(url) as page, opened(f"{url}api/runs/-/terminals?watch={trajectory}") as streamed:
        return PageObservations(page.read().decode(), state, b"".join(streamed.readline() for _ in range(3)).decode())


def with_a_step(url: str) -> dict[str, Any] | None:
    """Return the page's state once it has read a step; it polls twice a second."""
    with opened(f"{url}api/runs/-/state") as answer:
        state = json.load(answer)
    return state if state["step"] else None


def opened(url: str) -> HTTPResponse:
    return urlopen(url, timeout=60)  # noqa: S310  # the run's own page


def test_the_page_shows_a_run_and_one_of_its_terminals_while_the_run_is_active(done: FinishedWholeRun) -> None:
    assert f"live monitor: {done.watched.state['run']['url']}" in done.run.stderr
    assert "<title>" in done.watched.page
    assert done.watched.state["run"]["id"] == done.run.path.name
    assert done.watched.state["step"] >= 1
    assert done.watched.state["curves"]["reward_mean"]
    place, kind, data = done.watched.terminal.splitlines()
    assert place.startswith("id: ")
    assert kind == "event: cast"
    assert json.loads(data.removeprefix("data: "))["offset"] > 0


def test_every_acknowledged_trajectory_is_accounted_for(done: FinishedWholeRun) -> None:
    journal, counts = assert_accounting_balances(done.run.path), done.summary["trajectories"]
    assert counts["acknowledged"] == journal.acknowledged
    assert (
        counts["trained"]
        == journal.count("trained")
        == sum(len(line["trained"]) for line in read_ledger(done.run.path))
    )
    assert counts["dropped"] == journal.dropped()
    assert counts["superseded"] == journal.superseded
    assert counts["in_buffer"] == journal.count("buffered") == 0
    acknowledged = done.run.events("trajectory.stored")
    assert (
        len({event["trajectory"] for event in acknowledged})
        == len(acknowledged)
        == journal.acknowledged - journal.superseded
    )
    finished = done.run.events("episode.finished")
    assert counts["finished"] == sum(is_training_trajectory(event["trajectory"]) for event in finished)
    failed = done.run.events("episode.failed")
    assert counts["infra_failures"] == sum(is_training_trajectory(event["trajectory"]) for event in failed)


def test_a_task_folder_that_cannot_be_used_is_named(done: FinishedWholeRun) -> None:
    assert re.search(r"^left out: task \S+/malformed: task\.yaml is missing", done.run.stderr, re.MULTILINE)


def test_no_token_with_loss_was_older_than_the_bound(done: FinishedWholeRun) -> None:
    tokens, sampled = token_staleness(done.run.path)
    staleness, bound = done.summary["staleness"], done.summary["staleness"]["max_staleness"]
    kept = [steps for steps in tokens if steps <= bound]
    assert staleness["max"] == max(kept)
    assert staleness["max"] <= bound
    assert staleness["mean"] == pytest.approx(statistics.mean(kept), abs=1e-3)
    assert done.summary["trajectories"]["masked_tokens"] == sampled - len(kept)
    lines = read_lines(done.run.path / "metrics.jsonl")
    assert sum(line["trained_tokens"] for line in lines) == len(kept)
    assert sum(line["sampled_tokens"] for line in lines) == sampled


def test_the_summary_the_metrics_and_the_last_checkpoint_agree_on_the_steps(done: FinishedWholeRun) -> None:
    lines = read_lines(done.run.path / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert done.summary["steps"] == STEPS == read_json(last_checkpoint(done.run.path) / "manifest.json")["step"]
    assert all(len(line["trained"]) + len(line["dropped"]) == BATCH for line in read_ledger(done.run.path))
    clip = done.summary["clip"]
    assert clip["high_max"] == max(line["clip_high"] for line in lines)
    assert clip["low_max"] == max(line["clip_low"] for line in lines)
    assert clip["low_steps"] == sum(line["clip_low"] > 0 for line in lines)


def test_serving_and_training_agree_on_tokens_sampled_for_the_parity_check(done: FinishedWholeRun) -> None:
    """By the run's own settings, before its first step: in float32 on both sides the same arithmetic."""
    first, *others = read_lines(done.run.path / "metrics.jsonl")
    assert 0 <= first["parity_check_k3"] < 1e-4
    assert first["parity_check_tokens"] >= 100
    assert not any("parity_check_k3" in line for line in others)
    (measured,) = done.run.events("parity.measured")
    assert (measured["step"], measured["limit"], measured["k3"]) == (0, 1e-4, first["parity_check_k3"])
    assert measured["t"] < min(event["t"] for event in done.run.events("learner.step"))
    assert measured["version"] in {event["version"] for event in done.run.events("weights.published")}
    assert not done.run.events("parity.skipped")


def test_the_summary_of_weight_updates_matches_the_events_of_engines_and_learner(done: FinishedWholeRun) -> None:
    loads = done.run.events("engine.loaded")
    pauses = [event["pause_ms"] for event in loads]
    weights = done.summary["weights"]
    assert weights["loads"] == len(pauses) >= 1
    assert weights["pause_ms_max"] == max(pauses)
    assert weights["pause_ms_p50"] == pytest.approx(statistics.median(pauses), abs=0.01)
    published = done.run.events("weights.published")
    assert weights["versions"] == len({event["version"] for event in loads}) <= len(published)
    assert len({event["version"] for event in published}) == len(published), "a version was used twice"


def test_evaluation_summaries_match_their_attempts(done: FinishedWholeRun) -> None:
    for name in ("before", "after"):
        attempts = read_attempt_records(done.run.path / "evaluations" / name).values()
        sampled = [each.passed for each in attempts if not each.greedy]
        summary = done.summary["evaluation"][name]
        assert summary["n"] == len(sampled) == 2
        assert summary["pass_at_1"] == pytest.approx(statistics.mean(sampled), abs=1e-4)


def test_nothing_of_the_run_is_left(done: FinishedWholeRun) -> None:
    assert done.run.list_resources() == []
    started = done.run.events("sandbox.started")
    assert done.summary["sandbox"]["started"] == len(started)


def test_the_report_opens_without_a_network(done: FinishedWholeRun) -> None:
    page = (done.run.path / "report.html").read_text()
    outside = [url for url in re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"'\s)>]+)""", page) if "//" in url]
    assert not [url for url in outside if not url.startswith("data:")]
    assert "whole" in page


@pytest.mark.slow
def test_replaying_the_recorded_training_gives_the_same_weights(done: FinishedWholeRun) -> None:
    again = replay_summary(done.run.path)
    assert again["equal"], again
    assert again["steps"] == [1, 2, 3]


@pytest.mark.slow
def test_replaying_a_trajectory_shows_that_its_coin_task_is_flaky(done: FinishedWholeRun) -> None:
    """A dozen replays that all fall alike are one case in two thousand."""
    name = read_lines(done.run.path / "trajectories" / "index.jsonl")[0]["trajectory"]
    again = run_json("launch.replay", f"{done.run.path}/{name}", "--times", 12, "--concurrency", 4)
    assert (again.exit_code, again.output["failed"], again.output["task_changed"]) == (EXIT_FAILED, 0, False), (
        again.stderr
    )
    assert again.output["flaky"]
    assert {each["observations"] for each in again.output["replays"]} == {again.output["replays"][0]["observations"]}


def test_exported_trajectories_read_as_the_sampled_text(done: FinishedWholeRun, tmp_path: Path) -> None:
    """Word by word: a text has many encodings, and the model may have sampled any of them."""
    file, weights = tmp_path / "all.jsonl", max((done.run.path / "weights").glob("v*"))
    exported = run_json("launch.export", done.run.path, "--output", file)
    assert exported.exit_code == EXIT_OK, exported.stderr
    names = [json.loads(line)["id"].partition("/")[2] for line in file.read_text().splitlines()]
    assert exported.output["trajectories"] == len(names) > BATCH
    tokenizer = load_tokenizer(str(weights))
    end = tokenizer.decode([ChatFormat(tokenizer).turn_end_id], skip_special_tokens=False)
    of_file, of_run = (
        [
            (each.location, tokenizer.decode(each.token_ids.tolist(), skip_special_tokens=False))
            for each in examples.examples
        ]
        for examples in (read_examples([source], tokenizer, EVERYTHING) for source in (file, done.run.path))
    )
    sampled = {where.rpartition(" ")[2]: text for where, text in of_run}
    for name, (_, text) in zip(names, of_file, strict=True):
        assert sampled[name].startswith(text.removesuffix(end)), name


@pytest.mark.slow
@pytest.mark.parametrize("bound", ["learner.eps_high", "learner.eps_low"])
def test_each_bound_of_the_clip_range_is_at_work(done: FinishedWholeRun, bound: str) -> None:
    """In two minibatches, of which the second meets weights that the first has moved, however old its tokens are."""
    twice = ("--set", "learner.minibatches=2")
    wide, narrow = (
        replay_summary(done.run.path, *twice, *more)["digest"] for more in ((), ("--set", f"{bound}=0.001"))
    )
    assert wide != narrow, f"{bound} changes nothing"


def test_the_monitor_shows_the_fate_of_every_trajectory(done: FinishedWholeRun) -> None:
    """By what a step said for people, not by the journal, which it never opens."""
    follower = RunFollower(done.run.path)
    follower.load_initial()
    while follower.poll():
        pass
    page = follower.query_catalog(lambda catalog: list_trajectories(catalog, RowFilter(), PageRequest("oldest", 500)))
    rows = assert_accounting_balances(done.run.path).rows
    assert {row.id: (row.state.value, row.reason or None) for row in page.rows} == {
        name: (state, reason) for name, (state, _, reason) in rows.items()
    }
    used = [row for row in page.rows if row.step is not None]
    assert {row.id: row.step for row in used} == {row.id: rows[row.id][1] for row in used}
    trained = [row for row in page.rows if row.state == "trained"]
    assert all(row.logprob_gap is not None and row.advantage is not None for row in trained)
    known = follower.read_context()
    for row in trained[:BATCH]:
        tokens = read_token_page(known, follower.locate(row.id), 0, 0, 4_000)
        assert tokens is not None
        own = [
            gap
            for gap, staleness in zip(tokens.logprob_gap, tokens.staleness, strict=True)
            if staleness == 0 and gap is not None
        ]
        assert all(abs(gap) < 0.05 for gap in own), "engine and learner compute the same of the same weights"
        assert "".join(tokens.text).strip(), "its tokens are text"
    kinds = {track.kind for track in read_activity(done.run.path, None, None, 50).tracks}
    assert kinds == {"learner", "engine", "worker"}
