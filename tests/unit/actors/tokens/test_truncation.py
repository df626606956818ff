"""If these fail, an observation is longer than was set aside for it, or what is left of it is no text."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.tokens.chat_template import Tokenizer
from actors.tokens.control_tokens import ControlTokens
from actors.tokens.truncation import drop_middle, truncate_text
from launch.data.demo.tokenizer import train_tokenizer
from tests.support.fakes.fake_policy import FakeTokenizer

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("aé漢🦀\n"), max_size=400)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return cast("Tokenizer", train_tokenizer(1024))


@settings(deadline=None)
@given(text=TEXT, most=st.integers(32, 200))
def test_a_truncated_observation_keeps_both_ends_within_its_token_limit(
    tokenizer: Tokenizer, text: str, most: int
) -> None:
    made = truncate_text(ControlTokens(tokenizer), text, most)
    assert len(tokenizer.encode(made, add_special_tokens=False)) <= most
    if made == text:
        return
    begin, _, rest = made.partition("\n... [")
    _, mark, end = rest.partition(" tokens left out] ...\n")
    assert mark
    assert text.startswith(begin)
    assert text.endswith(end)


def test_truncated_text_states_the_number_of_tokens_left_out() -> None:
    assert (
        truncate_text(ControlTokens(FakeTokenizer()), "a" * 50 + "b" * 50, 44)
        == "aaaaaaa\n... [86 tokens left out] ...\nbbbbbbb"
    )
    assert truncate_text(ControlTokens(FakeTokenizer()), "short", 44) == "short"


def test_a_character_of_several_tokens_is_kept_or_dropped_whole(tokenizer: Tokenizer) -> None:
    text = "🦀" * 200
    assert "\ufffd" not in truncate_text(ControlTokens(tokenizer), text, 64)


@given(st.lists(st.integers(0, 9), max_size=80), st.integers(8, 60))
def test_a_prompt_with_dropped_middle_fills_its_limit_and_keeps_both_ends(ids: list[int], most: int) -> None:
    """OpenClaw's: three tenths of the room for the first tokens, the rest for the last."""
    mark = [-1, -2]
    made = drop_middle(ids, most, head_share=0.3, mark=mark)
    if len(ids) <= most:
        assert made == ids
        return
    assert len(made) == most
    head = int(0.3 * (most - 2))
    assert made == [*ids[:head], *mark, *ids[len(ids) - (most - 2 - head) :]]
