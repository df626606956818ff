import pytest

from pagetext.slugs import SlugBook, slug


@pytest.mark.parametrize(
    ("heading", "wanted"),
    [("Setup", "setup"), ("  What's new?  ", "what-s-new"), ("A -- B", "a-b"), ("Ünder 9", "ünder-9"), ("!?", "")],
)
def test_slugs(heading, wanted):
    assert slug(heading) == wanted


def test_each_heading_has_a_name_of_its_own():
    book = SlugBook()
    assert [book.name("Setup") for _ in range(3)] == ["setup", "setup-1", "setup-2"]


def test_a_name_that_looks_numbered_is_not_given_twice():
    book = SlugBook()
    assert [book.name(each) for each in ("Setup 1", "Setup", "Setup")] == ["setup-1", "setup", "setup-2"]


def test_reserved_names_are_not_given():
    assert SlugBook(["setup"]).name("Setup") == "setup-1"


def test_a_heading_without_letters_has_the_default():
    book = SlugBook()
    assert [book.name("!"), book.name("?"), book.name("!", "top")] == ["section", "section-1", "top"]
