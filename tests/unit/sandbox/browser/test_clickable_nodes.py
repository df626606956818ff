"""If these fail, an agent cannot click what a person would, or is shown numbers for what nobody would click."""

from __future__ import annotations

import msgspec

from sandbox.browser.clickable_nodes import PageSnapshot, find_clickable

Node = tuple[int, str, str]
"""Index of the parent, name, and letters: h for a handler of clicks, p for a hand as the cursor, x if not rendered."""
PAGE: list[Node] = [(-1, "#document", "x"), (0, "HTML", "h"), (1, "BODY", "hp")]


def clickable(*nodes: Node) -> list[int]:
    """Return the numbers of the clickable ones of ``nodes``, which follow the page's own."""
    every = [*PAGE, *nodes]
    strings = ["auto", "pointer", *(name for _, name, _ in every)]
    rendered = [at for at, (_, _, letters) in enumerate(every) if "x" not in letters]
    document = {
        "nodes": {
            "parentIndex": [parent for parent, _, _ in every],
            "nodeName": [at + 2 for at in range(len(every))],
            "backendNodeId": [at + 100 for at in range(len(every))],
            "isClickable": {"index": [at for at, (_, _, letters) in enumerate(every) if "h" in letters]},
        },
        "layout": {"nodeIndex": rendered, "styles": [[int("p" in every[at][2])] for at in rendered]},
    }
    found = find_clickable(msgspec.convert({"documents": [document], "strings": strings}, PageSnapshot))
    return [node - 100 - len(PAGE) for node in sorted(found)]


def test_a_handler_or_the_hand_makes_an_element_clickable() -> None:
    page = [(1, "DIV", "h"), (1, "DIV", ""), (4, "SPAN", "p"), (5, "I", "p"), (5, "#text", "p"), (5, "::before", "p")]
    assert clickable(*page) == [0, 2], "what inherits the cursor is no element of its own"


def test_a_handler_for_what_is_inside_is_none_unless_the_cursor_says_so() -> None:
    inner: list[Node] = [(3, "LI", ""), (4, "A", "hp")]
    assert clickable((1, "UL", "h"), *inner) == []
    assert clickable((1, "UL", "hp"), *inner) == [0]
    assert clickable((1, "UL", "h"), (3, "LI", "h"), (3, "LI", "h")) == [1, 2]


def test_controls_and_what_is_in_them_or_not_shown_are_left_out() -> None:
    in_controls = [(1, "A", "hp"), (3, "SPAN", "h"), (4, "B", "h"), (1, "label", "p"), (6, "DIV", "h")]
    assert clickable(*in_controls, (1, "DIV", "hx")) == []
