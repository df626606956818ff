"""Counting a document's structure as it arrives.  If this fails, a small file is refused, or a large structure stops a
server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.http.json_structure import MOST_ESCAPES, MOST_MARKS, MOST_PLAIN_BYTES, JsonStructure, TooMuchStructureError

Json = None | int | str | list["Json"] | dict[str, "Json"]
TEXTS = st.text(st.sampled_from('ab\\"[]{},:\n é'), max_size=8)
VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def marks(value: Json) -> int:
    """What a document of ``value`` has outside its strings, and its strings."""
    if isinstance(value, str):
        return 1
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(marks, value))
    if isinstance(value, dict):
        return 1 + max(0, len(value) - 1) + sum(2 + marks(each) for each in value.values())
    return 0


def refused(raw: bytes, most: int, piece: int) -> bool:
    structure = JsonStructure(most)
    try:
        for at in range(0, len(raw), piece):
            structure.add(raw[at : at + piece])
    except TooMuchStructureError:
        return True
    return False


@settings(max_examples=40)
@given(VALUES, st.booleans(), st.integers(1, 40))
def test_exactly_strings_and_what_is_between_them_count_in_pieces_of_any_size(
    value: Json, ascii_only: bool, piece: int
) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert not refused(raw, marks(value), piece)
    assert refused(raw, marks(value) - 1, piece)


@pytest.mark.parametrize("part", [b"[]", b'""', b"[", b"{", b"1,", b'"":0,'])
def test_a_large_structure_is_refused_early(part: bytes) -> None:
    assert refused(part * (1 << 18), MOST_MARKS, 1 << 16)


@pytest.mark.parametrize("part", [b"\\u00e9", b"\\n", b"\\\\"])
def test_what_has_many_escapes_is_refused(part: bytes) -> None:
    at_most = b'"' + part * (MOST_ESCAPES // part.count(b"\\"))
    assert not refused(at_most, MOST_MARKS, 1 << 16)
    assert refused(at_most + part, MOST_MARKS, 1 << 16)


def test_what_has_many_digits_is_refused() -> None:
    numbers = (b"9" * 4300 + b",") * (MOST_PLAIN_BYTES // 4301)
    assert not refused(numbers, MOST_MARKS, 1 << 16)
    assert refused(numbers + b"9" * 4301, MOST_MARKS, 1 << 16)


def test_an_empty_piece_changes_nothing() -> None:
    structure = JsonStructure(1)
    for piece in (b'"\\', b"", b'"[[[['):
        structure.add(piece)


def test_a_large_file_is_not_structure() -> None:
    structure = JsonStructure()
    structure.add(b'{"files":{"/a":"')
    for _ in range(10):
        structure.add(b"[{,:" * (1 << 14))
    structure.add(b'"}}')
