"""If these fail, a page fills an agent's context, or the agent does not learn how to see the rest of it."""

from __future__ import annotations

import pytest

from sandbox.browser.accessibility import PageOutline
from sandbox.browser.observation import PageView, format_text_part, format_view

LINES = [f'[{number}] link "Page {number}"' for number in range(1, 500)]


def view(lines: list[str], status: int = 200, scrolled_px: int = 0, scrollable_px: int = 0) -> PageView:
    return PageView("http://shop/", 'A "shop"\n', PageOutline(lines), status, scrolled_px, scrollable_px)


def test_a_page_is_shown_with_its_address_title_status_and_place() -> None:
    text, part = format_view(view(['button "x"'], status=404, scrolled_px=5, scrollable_px=90), ["Clicked."], 0, 1000)
    assert part == 0
    assert text.split("\n") == [
        "Clicked.",
        "URL: http://shop/",
        'Title: "A \\"shop\\"\\n"',
        "HTTP status: 404",
        "Scrolled: 5 of 90 px",
        'button "x"',
    ]


@pytest.mark.parametrize("budget", [600, 1000, 5000])
def test_the_parts_of_a_page_fit_the_budget_and_are_all_of_it(budget: int) -> None:
    seen, part = list[str](), 0
    while True:
        text, shown = format_view(view(LINES), [], part, budget)
        assert len(text) <= budget
        if shown != part:  # there is no further one
            break
        seen += [line for line in text.split("\n") if line.startswith("[") and "link" in line]
        assert '"view_more"' in text
        part += 1
    assert seen == LINES


@pytest.mark.parametrize("budget", [80, 300, 1000, 4000])
def test_neither_notes_nor_an_address_nor_a_title_exceed_the_budget(budget: int) -> None:
    page = PageView(f"http://shop/{'x' * 5000}", '\1"' * 5000, PageOutline(["y" * 300] * 50))
    text, _ = format_view(page, ["The page showed a dialog."] * 100, 1, budget)
    assert len(text) <= budget
    assert budget < 300 or ("yyy" in text and "view_more" in text)


def test_a_part_before_the_first_is_the_first_and_says_what_follows() -> None:
    text, part = format_view(view(LINES), [], -1, 1000)
    assert part == 0
    assert text.endswith('"view_more" with "direction": "down" shows more]')


def test_a_line_that_is_longer_than_a_part_is_cut_and_an_empty_page_is_told() -> None:
    text, _ = format_view(view(["x" * 5000]), [], 0, 600)
    assert len(text) <= 600
    assert format_view(view([]), [], 0, 600)[0].endswith("(the page is empty)")


def test_a_page_that_is_too_large_for_an_outline_says_how_to_name_them() -> None:
    page = PageView("http://shop/", "Shop", PageOutline(["text"]), is_text=True)
    assert (
        "too large to list its elements: this is its text. Name elements by a CSS" in format_view(page, [], 0, 600)[0]
    )


def test_a_part_of_the_text_says_how_to_read_the_next() -> None:
    assert format_text_part("abc", 0, 2).endswith(
        '[part 1 of 2 of the page\'s text; "read" with "part": 2 shows the next]'
    )
    assert format_text_part("", 0, 1) == "(the page has no text)\n[part 1 of 1 of the page's text]"
