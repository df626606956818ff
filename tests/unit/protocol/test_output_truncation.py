"""An agent sees both ends of a long output, and memory stays bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.truncation import HeadTailBuffer, strip_escapes, truncate_middle


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(0, 64), st.integers(0, 64))
def test_kept_and_dropped_bytes_add_up_for_any_chunks(chunks, head, tail):
    kept = HeadTailBuffer(head, tail)
    for chunk in chunks:
        kept.feed(chunk)
    whole = b"".join(chunks)
    assert kept.total == len(whole)
    assert kept.dropped == max(0, len(whole) - head - tail)
    if not kept.dropped:
        assert kept.text() == whole.decode(errors="replace")


@given(st.text(alphabet="aé漢🙂", min_size=60, max_size=200), st.integers(4, 20), st.integers(4, 20))
def test_a_cut_never_splits_a_character(text, head, tail):
    kept = HeadTailBuffer(head, tail)
    kept.feed(text.encode())
    assert "\ufffd" not in kept.text()
    if kept.dropped:
        before, after = kept.text().split("\n... [", 1)[0], kept.text().rsplit("] ...\n", 1)[1]
        assert text.startswith(before)
        assert text.endswith(after)


def test_a_hundred_megabytes_leave_a_few_kilobytes():
    kept = HeadTailBuffer(1000, 1000)
    block = b"x" * (1 << 20)
    for _ in range(100):
        kept.feed(block)
    assert len(kept.text()) < 2100
    assert kept.dropped == (100 << 20) - 2000


@given(st.text(max_size=3000))
def test_shortened_text_keeps_both_ends(text):
    short = truncate_middle(text, 1000)
    assert short == text if len(text) <= 1000 else short.startswith(text[:500]) and short.endswith(text[-500:])


def test_colours_and_titles_are_not_shown_to_the_model():
    assert strip_escapes("\x1b[1;31mred\x1b[0m \x1b]0;title\x07plain") == "red plain"


@pytest.mark.parametrize(
    "invisible",
    [
        "\x1b(B\x1b[m",  # tput sgr0
        "\x1b7\x1b8",
        "\x1b=\x1b>",
        "\x1bc",
        "\x1b#8",
        "\x1b%G",
        "\x1b[?2004h\x1b[>4;1m\x1b[6 q\x1b[38:2::1:2:3m",
        "\x1bP1$r0m\x1b\\",
        "\x1bP0;1|17/ab\x9c",
        "\x1b]8;;https://example.org\x1b\\",
        "\x1b]0;\u4e2d title\x07",
        "\x1b_Gf=24;AAAA\x1b\\\x1b^private\x1b\\\x1bXstart\x1b\\",
        "\x0e\x0f\x07",
        "\u009b31m\u009b?25l",
        "\u009d0;title\u009c\u009d0;title\x07\u0090q#0\x1b\\",
        "\x1bPtmux;\x1b\x1b]0;title\x07\x1b\\",
        "\x1bPtmux;\x1b\x1b]8;;http://a\x1b\x1b\\\x1b\x1b[31m\x1b\\",
        "\x1bP\x1b]0;title\x07\x1b\\",
    ],
)
def test_every_escape_sequence_is_removed_and_no_text(invisible: str):
    assert strip_escapes(f"before {invisible}after\n") == "before after\n"


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        ("\x1b", ""),
        ("\x1b[3", "3"),
        ("\x1b]0;no end\nnext", "0;no end\nnext"),
        ("\x1b\n", "\n"),
        ("\u009d0;x\ny", "0;x\ny"),
        ("\u009d0;x\u00900;y\u009c", "0;x"),
        ("\x1bPtmux;\x1b\x1b[1mx\ny", "tmux;x\ny"),
    ],
)
def test_an_unfinished_escape_sequence_takes_no_text_with_it(cut: str, left: str):
    assert strip_escapes(f"before{cut}") == f"before{left}"
