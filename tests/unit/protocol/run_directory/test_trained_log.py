"""If these fail, a person is shown other tokens than those that were trained, or a full disk ends a run for that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.run_directory.blob_files import BlobLocation, read_blob_bytes
from protocol.run_directory.trained_log import (
    TRAINED_FOLDER,
    TRAINED_INDEX,
    PackedTrainedTokens,
    RewindEntry,
    TokenLossFlag,
    TrainedLog,
    TrainedStepEntry,
    TrainedTokens,
    pack_trained_tokens,
    parse_trained_line,
    read_trained_tokens,
    unpack_trained_tokens,
)


def facts(tokens: int, first: float = -0.5) -> TrainedTokens:
    """Every third token without loss."""
    logprobs = np.linspace(first, first - 1, tokens).astype(np.float32)
    logprobs[::3] = np.nan
    marks = np.where(np.isnan(logprobs), 0, TokenLossFlag.HIGH.value).astype(np.uint8)
    return TrainedTokens(logprobs, np.where(np.isnan(logprobs), np.float32(np.nan), np.float32(0.25)), marks)


def record(tokens: int) -> PackedTrainedTokens:
    return PackedTrainedTokens(pack_trained_tokens(facts(tokens)), 0.25, 0.01)


def lines(run_dir: Path) -> list[TrainedStepEntry | RewindEntry | None]:
    return [parse_trained_line(raw) for raw in (run_dir / TRAINED_FOLDER / TRAINED_INDEX).read_bytes().splitlines()]


@given(st.integers(0, 300))
def test_token_records_survive_a_round_trip_bitwise(tokens: int) -> None:
    made = facts(tokens)
    found = unpack_trained_tokens(pack_trained_tokens(made))
    for mine, yours in zip((made.logprobs, made.advantages, made.loss_flags),
                           (found.logprobs, found.advantages, found.loss_flags), strict=True):  # fmt: skip
        assert mine.tobytes() == yours.tobytes()


@given(st.binary(max_size=200))
def test_invalid_token_records_are_refused_with_a_value_error(blob: bytes) -> None:
    with pytest.raises(ValueError, match="token values"):
        unpack_trained_tokens(blob)


@given(st.data())
def test_a_damaged_blob_is_refused_or_keeps_its_number_of_tokens(data: st.DataObject) -> None:
    blob = bytearray(pack_trained_tokens(facts(50)))
    blob[data.draw(st.integers(8, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = unpack_trained_tokens(bytes(blob))
    except ValueError:
        return
    assert len(found.logprobs) == len(found.loss_flags) == 50


def test_each_trajectory_of_a_step_has_separate_token_records(tmp_path: Path) -> None:
    log = TrainedLog(tmp_path, now=lambda: 12.5)
    log.record_step(1, 7, ["a", "b", "c"], {"d": "all_stale"}, {"a": record(10), "c": record(20)})
    log.record_step(None, 8, [], {"e": "all_stale"}, {})
    first, second = lines(tmp_path)
    assert isinstance(first, TrainedStepEntry)
    assert isinstance(second, TrainedStepEntry)
    assert (first.step, first.version, first.t, second.step) == (1, 7, 12.5, None)
    assert [(each.trajectory, each.reason) for each in first.trajectories] == [
        ("a", ""), ("b", ""), ("c", ""), ("d", "all_stale"),
    ]  # fmt: skip
    a, b, c, d = first.trajectories
    assert len(read_trained_tokens(tmp_path, a).loss_flags) == 10
    assert len(read_trained_tokens(tmp_path, c).loss_flags) == 20
    assert read_trained_tokens(tmp_path, b) is None
    assert read_trained_tokens(tmp_path, d) is None
    assert (a.advantage, a.logprob_gap, b.logprob_gap) == (0.25, 0.01, None)


def test_a_rewind_is_recorded(tmp_path: Path) -> None:
    log = TrainedLog(tmp_path)
    log.record_step(1, 7, ["a"], {}, {})
    log.record_rewind(0)
    assert isinstance(lines(tmp_path)[1], RewindEntry)


def test_a_restarted_process_appends_to_the_same_files(tmp_path: Path) -> None:
    TrainedLog(tmp_path, file_bytes=400).record_step(1, 7, ["a"], {}, {"a": record(30)})
    with (tmp_path / TRAINED_FOLDER / TRAINED_INDEX).open("ab") as file:
        file.write(b'{"step": 2, "torn')
    again = TrainedLog(tmp_path, file_bytes=400)
    for step in range(2, 6):
        again.record_step(step, 7, [f"t{step}"], {}, {f"t{step}": record(30 + step)})
    found = lines(tmp_path)
    assert [line.step for line in found] == [1, 2, 3, 4, 5]
    assert {line.trajectories[0].file for line in found} > {"tokens-00001.bin"}
    assert [len(read_trained_tokens(tmp_path, line.trajectories[0]).loss_flags) for line in found] == [
        30,
        32,
        33,
        34,
        35,
    ]


def test_failed_writes_are_counted_and_raise_nothing(tmp_path: Path) -> None:
    (tmp_path / TRAINED_FOLDER).write_text("in the way")
    log = TrainedLog(tmp_path)
    log.record_step(1, 7, ["a"], {}, {"a": record(10)})
    log.record_rewind(0)
    assert log.failures == 3


def test_numbers_that_json_does_not_have_are_left_out(tmp_path: Path) -> None:
    TrainedLog(tmp_path).record_step(
        1, 7, ["a"], {}, {"a": PackedTrainedTokens(pack_trained_tokens(facts(3)), float("nan"), float("inf"))}
    )
    (line,) = lines(tmp_path)
    assert (line.trajectories[0].advantage, line.trajectories[0].logprob_gap) == (None, None)


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"step": 1}', b"\xff", b'{"rewound_to": "x"}', b"[]"])
def test_a_damaged_line_is_skipped(raw: bytes) -> None:
    assert parse_trained_line(raw) is None


@pytest.mark.parametrize("name", ["../config.json", "tokens-1.bin/../x", "TOKENS-1.bin", ""])
def test_an_index_cannot_refer_to_files_outside_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a blob file"):
        read_blob_bytes(tmp_path, BlobLocation(name, 0), 1)
