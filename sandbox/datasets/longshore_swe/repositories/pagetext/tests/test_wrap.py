import pytest

from pagetext.wrap import justify, paragraphs, wrap


def test_lines_are_as_wide_as_allowed():
    assert wrap("aa bb cc dd", 5) == ["aa bb", "cc dd"]
    assert wrap("aa bb cc dd", 4) == ["aa", "bb", "cc", "dd"]


def test_a_long_word_has_a_line_of_its_own():
    assert wrap("a bbbbbbbb c", 3) == ["a", "bbbbbbbb", "c"]


def test_indents_count():
    assert wrap("aa bb cc", 7, indent="  ") == ["  aa bb", "  cc"]
    assert wrap("aa bb cc", 7, indent="  ", first_indent="* ") == ["* aa bb", "  cc"]


def test_the_first_indent_may_be_empty():
    assert wrap("aa bb cc", 5, indent="  ", first_indent="") == ["aa bb", "  cc"]


def test_no_words_make_no_line():
    assert wrap("  ") == []


def test_a_width_of_nothing_is_refused():
    with pytest.raises(ValueError, match="width"):
        wrap("a", 0)


def test_paragraphs_end_at_blank_lines():
    assert paragraphs("a\n b\n\n \nc\n") == ["a b", "c"]
    assert paragraphs("a\n\nb") == ["a", "b"]
    assert paragraphs("") == []


@pytest.mark.parametrize(
    ("line", "width", "wanted"),
    [("a b c", 7, "a  b  c"), ("a b c", 8, "a   b  c"), ("a b", 3, "a b"), ("word", 9, "word"), ("aa bb", 4, "aa bb")],
)
def test_a_line_is_filled(line, width, wanted):
    assert justify(line, width) == wanted
