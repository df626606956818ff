"""If these fail, an evaluation that is looked at while it runs is refused, or a damaged one is taken for whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import UserError
from protocol.evaluation import read_attempts, write_attempts
from tests.support.runs.attempts import make_attempt


def test_an_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "attempts.jsonl"
    assert read_attempts(file) == {}
    write_attempts(file, [make_attempt("a"), make_attempt("b", number=1)])
    whole = read_attempts(file)
    assert [record.task for record in whole.values()] == ["a", "b"]
    line = file.read_bytes().splitlines()[0]
    with file.open("ab") as out:
        out.write(line[:-5])
    assert read_attempts(file) == whole


def test_a_damaged_line_is_named_or_skipped(tmp_path: Path) -> None:
    file = tmp_path / "attempts.jsonl"
    write_attempts(file, [make_attempt("a"), make_attempt("b")])
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first[:-5] + b"\n" + second)
    with pytest.raises(UserError, match=r"attempts\.jsonl:1 is not an attempt"):
        read_attempts(file)
    assert [record.task for record in read_attempts(file, skip_damaged=True).values()] == ["b"]
