"""If these fail, plans that a harness hands on have no loss, or titles are trained."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.quotes import find_runs


def quotes(text: str, reply: str) -> bool:
    return not find_runs([reply]).isdisjoint(find_runs([text]))


@given(st.text(), st.text(), st.lists(st.text("abcdefgh\u00e9", min_size=4), min_size=4))
def test_a_quote_is_found_in_any_text_with_any_marks_and_inside_json(before: str, after: str, words: list[str]) -> None:
    reply = " ".join(words)
    text = " ".join([before, "\n* ".join(words).upper(), after])
    assert quotes(text, reply)
    assert quotes(json.dumps(json.dumps(text)), reply)


@pytest.mark.parametrize("reply", ["", "no", "a file", "is it in the", "Writing the file"])
def test_few_or_short_words_are_no_quote(reply: str) -> None:
    assert not find_runs([reply])


def test_a_quote_begins_with_a_word_and_may_be_cut_in_one() -> None:
    reply = "write hello with echoes and read it back"
    assert not quotes("rewrite hello with echoes", reply)
    assert quotes("write hello with echo…", reply)
