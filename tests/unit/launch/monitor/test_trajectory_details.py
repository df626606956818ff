"""If these fail, a person who asks why a trajectory failed, or was not trained, is told something else."""

from __future__ import annotations

import fcntl
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from actors.gateway.reply_roles import mark_roles
from launch.bench.monitor.synthetic_run import write_synthetic_run
from launch.monitor.api_types import TokenUse
from launch.monitor.archive.recordings import find_turn_positions, read_sanitized_recording
from launch.monitor.archive.token_pages import read_token_page
from launch.monitor.archive.trajectory_details import read_group_member, read_trajectory_detail
from launch.monitor.archive.vocabulary import EMPTY_VOCABULARY, read_vocabulary
from launch.monitor.run_follower import RunFollower
from launch.monitor.run_state.past_totals import PastTotals
from launch.monitor.run_state.store import RunStore
from protocol import codec
from protocol.events import EventLog
from protocol.run_directory.layout import NoSuchRunError
from protocol.run_directory.lineage_log import LineageLog
from protocol.run_directory.run_tail import RunTail
from protocol.run_directory.terminal_recordings import CastWriter, turn_marker_label
from protocol.run_directory.trained_log import (
    PackedTrainedTokens,
    TokenLossFlag,
    TrainedLog,
    TrainedTokens,
    pack_trained_tokens,
)
from protocol.run_directory.trajectory_export import TrajectoryExporter, UnreadableTrajectoryError
from protocol.trajectory import ASIDES, ReplyRole, Segment, TestResult, Turn, TurnKind
from protocol.weights import NO_VERSION, LineageEntry, WeightVersion, make_version
from tests.support.runs.trajectories import make_segment, make_trajectory

OLD, NEW = make_version(1, 0), make_version(1, 3)
NAN = np.float32(np.nan)


def run_of(run_dir: Path, *, reason: str = "", trained: bool = True, asides: tuple[Segment, ...] = ()) -> RunFollower:
    """One trajectory of a prompt of 3 tokens, 4 sampled ones of which the first is too old, and an observation of 2;
    then ``asides``."""
    (run_dir / "config.json").write_bytes(orjson.dumps({"config": {"staleness": {"max_staleness": 2}}}))
    lineage = LineageLog(run_dir)
    lineage.append(LineageEntry(OLD, 0, NO_VERSION))
    lineage.append(LineageEntry(WeightVersion(OLD + 1), 1, OLD))
    lineage.append(LineageEntry(NEW, 3, WeightVersion(OLD + 1)))
    segment = make_segment(3, 6)
    mask = np.array([0, 0, 0, 1, 1, 1, 1, 0, 0], np.uint8)
    versions = np.array([-1, -1, -1, OLD, OLD + 1, OLD + 1, OLD + 1, -1, -1], np.int32)
    turns = (
        Turn(TurnKind.PROMPT, 0, 3),
        Turn(TurnKind.MODEL, 3, 7, duration_ms=5.0, key_version=OLD),
        Turn(TurnKind.OBSERVATION, 7, 9, "shell\x1b[2J", 1, 2.0),
    )
    segment = type(segment)(segment.token_ids, mask, (mask * -0.5).astype(np.float32), versions, turns)
    trajectory = make_trajectory(0, 0, reward=0.5, segments=(segment, *asides))
    blob = codec.pack_trajectory(trajectory)
    TrajectoryExporter(run_dir).export_trajectory(codec.inspect_blob(blob), blob)
    if trained:
        logprobs = np.array([NAN, NAN, NAN, NAN, -0.5, -0.75, -1.5, NAN, NAN], np.float32)
        marks = np.array(
            [0, 0, 0, 0, 0, TokenLossFlag.LOW, TokenLossFlag.HIGH | TokenLossFlag.CORRECTED, 0, 0], np.uint8
        )
        record = PackedTrainedTokens(
            pack_trained_tokens(TrainedTokens(logprobs, np.where(np.isnan(logprobs), NAN, np.float32(2.0)), marks)),
            2.0,
            0.4,
        )
        name = "train-g000000-s00"
        TrainedLog(run_dir).record_step(
            3, NEW, [] if reason else [name], {name: reason} if reason else {}, {} if reason else {name: record}
        )
    follower = RunFollower(run_dir)
    follower.load_initial()
    follower.poll()
    return follower


def page_of(follower: RunFollower):
    where = follower.locate("train-g000000-s00")
    return read_token_page(follower.read_context(), where, 0, 0, 100)


def test_every_token_shows_its_use_in_training(tmp_path: Path) -> None:
    page = page_of(run_of(tmp_path))
    assert page.use == [
        *[TokenUse.PROMPT] * 3, TokenUse.STALE, TokenUse.TRAINED, TokenUse.CLIP_LOW, TokenUse.CORRECTED,
        *[TokenUse.OBSERVATION] * 2,
    ]  # fmt: skip
    assert page.staleness == [None, None, None, 3, 2, 2, 2, None, None]
    assert page.logprob == [None, None, None, -0.5, -0.5, -0.5, -0.5, None, None]
    assert page.probability[4] == pytest.approx(0.60653)
    assert page.learner_logprob == [None] * 4 + [-0.5, -0.75, -1.5, None, None]
    assert page.logprob_gap == [None] * 4 + [0.0, -0.25, -1.0, None, None]
    assert page.advantage == [None] * 4 + [2.0] * 3 + [None] * 2
    assert page.version == ["", "", "", "1.0", "1.1", "1.1", "1.1", "", ""]
    assert (page.total, page.start, page.end) == (9, 0, 9)


@pytest.mark.parametrize(
    ("reason", "fates"), [("all_stale", {TokenUse.STALE, TokenUse.DROPPED}), ("zero_variance", {TokenUse.DROPPED})]
)
def test_tokens_of_a_dropped_trajectory_are_marked_by_the_reason(
    tmp_path: Path, reason: str, fates: set[TokenUse]
) -> None:
    page = page_of(run_of(tmp_path, reason=reason))
    assert set(page.use[3:7]) == fates


def test_tokens_that_no_step_has_used_are_marked_as_waiting(tmp_path: Path) -> None:
    page = page_of(run_of(tmp_path, trained=False))
    assert page.use[3:7] == [TokenUse.WAITING] * 4
    assert page.staleness == [None] * 9


def test_a_token_page_has_only_the_requested_range(tmp_path: Path) -> None:
    follower = run_of(tmp_path)
    where = follower.locate("train-g000000-s00")
    part = read_token_page(follower.read_context(), where, 0, 4, 2)
    assert (part.start, part.end, part.id, part.use) == (4, 6, [104, 105], [TokenUse.TRAINED, TokenUse.CLIP_LOW])
    assert read_token_page(follower.read_context(), where, 0, 1000, 5).id == []
    assert read_token_page(follower.read_context(), where, 1, 0, 5) is None


def test_trajectory_details_have_the_turns_and_their_positions_in_the_recording(tmp_path: Path) -> None:
    now = iter([100.0, 101.0, 102.5, 103.0, 104.0, 105.0, 106.0, 107.0])
    path = tmp_path / "terminals" / "train-g000000-s00-a0.cast"
    with CastWriter.open(path, title="Do \x1b]0;it\x07now", clock=lambda: next(now)) as cast:
        cast.record_output("first")
        cast.record_marker(turn_marker_label(0))
        cast.record_note("reply")
    follower = run_of(tmp_path)
    found = read_trajectory_detail(follower.read_context(), follower.locate("train-g000000-s00"))
    prompt, model, observation = found.segments[0].turns
    assert (model.index, model.at_s, model.sampled, model.trained, model.staleness_max) == (0, 2.5, 4, 3, 3)
    assert path.read_bytes()[model.recording_offset :].startswith(b'[2.5,"m"')
    assert (model.logprob_gap_mean, model.logprob_gap_max) == (pytest.approx(0.41667, rel=1e-4), 1.0)
    assert (prompt.index, prompt.at_s, observation.tool, observation.exit_code) == (-1, None, "shell", 1)
    assert (found.instruction, found.parts, found.trained_version) == ("Do now", {"outcome": 0.5}, "1.3")
    assert (found.recording.name, found.recording.live, found.max_staleness) == ("train-g000000-s00-a0", False, 2.0)


def test_a_turn_has_its_own_position_in_the_recording_where_segments_have_another_order(tmp_path: Path) -> None:
    now = itertools.count(100.0)
    with CastWriter.open(
        tmp_path / "terminals" / "train-g000000-s00-a0.cast", title="", clock=lambda: next(now)
    ) as cast:
        for turn in range(3):
            cast.record_marker(turn_marker_label(turn))
    later, title = (
        replace(make_segment(1, 2), turns=(Turn(TurnKind.MODEL, 1, 3, number=number),)) for number in (2, 1)
    )
    follower = run_of(tmp_path, trained=False, asides=(later, title))
    found = read_trajectory_detail(follower.read_context(), follower.locate("train-g000000-s00"))
    turns = [turn for segment in found.segments for turn in segment.turns if turn.kind == "model"]
    assert [turn.index for turn in turns] == [0, 2, 1]
    first, last, middle = (turn.at_s for turn in turns)
    assert first < middle < last


def test_a_reply_that_is_not_the_agents_work_is_told_apart_with_its_tokens(tmp_path: Path) -> None:
    asides = mark_roles([make_segment(1, 2), make_segment(1, 2)], [ReplyRole.AUXILIARY, ReplyRole.DISCARDED], ASIDES)
    follower = run_of(tmp_path, trained=False, asides=asides)
    where = follower.locate("train-g000000-s00")
    found = read_trajectory_detail(follower.read_context(), where)
    assert [[turn.role for turn in segment.turns] for segment in found.segments] == [
        *(["", "", ""], ["", "auxiliary"], ["", "discarded"])
    ]
    pages = [read_token_page(follower.read_context(), where, segment, 0, 9) for segment in (1, 2)]
    assert [page.use for page in pages if page] == [
        [TokenUse.PROMPT, TokenUse.AUXILIARY, TokenUse.AUXILIARY],
        [TokenUse.PROMPT, TokenUse.DISCARDED, TokenUse.DISCARDED],
    ]


def test_damaged_token_facts_do_not_hide_the_rest_of_a_page(tmp_path: Path) -> None:
    follower = run_of(tmp_path)
    tokens = next((tmp_path / "trained").glob("tokens-*"))
    tokens.write_bytes(b"\0" * tokens.stat().st_size)
    page = page_of(follower)
    assert page.learner_logprob == [None] * 9
    assert page.use[4] is TokenUse.UNTRAINED


def test_a_damaged_record_is_named_and_its_group_is_still_shown(tmp_path: Path) -> None:
    follower = run_of(tmp_path)
    segment = next((tmp_path / "trajectories").glob("trajectories-*"))
    segment.write_bytes(b"\0" * segment.stat().st_size)
    where = follower.locate("train-g000000-s00")
    with pytest.raises(UnreadableTrajectoryError, match=r"train-g000000-s00 in trajectories-00001\.bin cannot be read"):
        read_trajectory_detail(follower.read_context(), where)
    assert "cannot be read" in read_group_member(follower.read_context(), where).problem


def test_a_member_has_its_tests_and_reward_parts(tmp_path: Path) -> None:
    follower = run_of(tmp_path)
    (found,) = (read_group_member(follower.read_context(), where) for where in follower.members(0))
    assert (found.turns, found.tests_passed, found.tests, found.parts) == (1, 1, 1, {"outcome": 0.5})


def test_a_character_made_of_two_tokens_is_shown_at_the_second(tmp_path: Path) -> None:
    vocabulary = {"Ã": 0, "¶": 1, "Ġa": 2, "Ċ": 3, "Ä": 4}
    tokenizer = {
        "model": {"vocab": vocabulary}, "decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}]},
        "added_tokens": [{"id": 9, "content": "<|end|>"}],
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_bytes(orjson.dumps(tokenizer))
    found = read_vocabulary([tmp_path / "none", tmp_path])
    assert found.decode_each([2, 0, 1, 3, 9, 77]) == [" a", "", "ö", "\n", "<|end|>", "⟨77⟩"]
    assert found.decode([2, 0, 1]) == " aö"
    assert found.decode_each([4]) == ["\ufffd"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"model": 3}', b'{"model": {"vocab": []}}'])
def test_an_unreadable_tokenizer_gives_an_empty_vocabulary(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    assert read_vocabulary([tmp_path]) is EMPTY_VOCABULARY


def test_a_recording_is_safe_to_play(tmp_path: Path) -> None:
    path = tmp_path / "x.cast"
    with CastWriter.open(path, title="a\x1b[2J") as cast:
        cast.record_output("ok\x1b]52;c;")
        cast.record_output("aGk=\x07\x1b[31mred")
        cast.record_marker(turn_marker_label(1))
    with path.open("ab") as file:
        file.write(b'{"half')
    header, *events = map(orjson.loads, read_sanitized_recording(path))
    assert header["title"] == "a"
    assert [event[2] for event in events] == ["ok", "\x1b[31mred", "turn 1"]
    assert list(find_turn_positions(path)) == [1]
    assert list(read_sanitized_recording(tmp_path / "none.cast")) == []


def test_a_forged_header_of_a_recording_is_safe_to_play(tmp_path: Path) -> None:
    path = tmp_path / "x.cast"
    forged = {"version": "<b>", "width": 1_000_000_000, "height": [1], "timestamp": "<img src=x onerror=1>", "title": 3}
    path.write_bytes(orjson.dumps(forged) + b"\n")
    (header,) = map(orjson.loads, read_sanitized_recording(path))
    assert header == {"version": 2, "width": 400, "height": 24, "timestamp": 0, "title": ""}


# -- a long run --------------------------------------------------------------------------------------------------------


def test_totals_of_a_long_run_cover_its_whole_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though a reader begins near the end."""
    write_synthetic_run(tmp_path / "run", 128)
    whole = RunStore(tmp_path / "run")
    whole.catch_up()
    monkeypatch.setattr("launch.monitor.run_state.past_totals.RECENT_BYTES", 4_000)
    monkeypatch.setattr("launch.monitor.run_state.past_totals.CHUNK_BYTES", 5_000)
    quick = RunStore(tmp_path / "run")
    quick.poll()
    assert quick.view().totals.acknowledged < 128
    assert quick.behind_bytes > 0
    quick.catch_up()
    assert quick.view().totals == whole.view().totals
    assert quick.view().totals.acknowledged == 128
    assert (quick.view().workers, quick.view().step) == (whole.view().workers, whole.view().step)
    assert quick.behind_bytes == 0


def test_counting_the_history_of_a_vanished_file_ends(tmp_path: Path) -> None:
    history = PastTotals(tmp_path, {"events/worker-0": 1 << 30})
    assert history.count_next_chunk() == 0
    assert history.remaining_bytes == 0


def test_a_stream_is_never_ahead_of_the_lists(tmp_path: Path) -> None:
    """Without this, a page that is notified of a trajectory requests it before it is listed."""
    write_synthetic_run(tmp_path / "run", 64)
    follower = RunFollower(tmp_path / "run")
    reader = RunTail(follower.run_dir, ("events/*.jsonl",), bounds=lambda: follower.cursor)
    assert reader.read() == []
    follower.poll()
    taken = follower.cursor
    while reader.read(100):
        assert all(reader.cursor[source] <= taken.get(source, 0) for source in reader.cursor)
    assert reader.cursor == taken


@pytest.mark.parametrize(("flow", "expected"), [("pause", "paused"), ("drain", "draining"), ("run", "")])
def test_a_pause_or_drain_is_shown_while_the_run_is_alive(tmp_path: Path, flow: str, expected: str) -> None:
    run_dir = tmp_path / "run"
    write_synthetic_run(run_dir, 64)
    log = EventLog(run_dir, "scheduler", "node-0")
    log.emit("scheduler.flow", flow=flow)
    log.close()
    follower = RunFollower(run_dir)
    with (run_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while follower.poll():
            pass
        assert follower.head().flow == expected
    follower = RunFollower(run_dir)
    while follower.poll():
        pass
    assert follower.head().flow == "", "nobody is there to go on"


def test_a_run_that_is_removed_while_it_is_watched_is_reported_as_gone(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    write_synthetic_run(run_dir, 64)
    follower = RunFollower(run_dir)
    follower.load_initial()
    run_dir.rename(tmp_path / "elsewhere")
    assert follower.poll() is False
    assert follower.is_gone
    assert "was removed" in follower.head().problem
    with pytest.raises(NoSuchRunError):
        RunFollower(run_dir)


def test_names_of_tests_and_error_texts_are_sanitized(tmp_path: Path) -> None:
    from dataclasses import replace

    trajectory = replace(make_trajectory(1, 0), tests=(TestResult("a\x1b[2Jb", True),), error="x\x07y")
    blob = codec.pack_trajectory(trajectory)
    TrajectoryExporter(tmp_path).export_trajectory(codec.inspect_blob(blob), blob)
    follower = RunFollower(tmp_path)
    follower.load_initial()
    found = read_trajectory_detail(follower.read_context(), follower.locate("train-g000001-s00"))
    assert (found.tests[0].name, found.error) == ("ab", "xy")
