"""If these fail, an agent's keys do not reach the program, and it cannot leave vim."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.session.keys import encode_key, encode_keys


@pytest.mark.parametrize(
    ("key", "sent"),
    [
        ("C-c", b"\x03"),
        ("C-d", b"\x04"),
        ("^[", b"\x1b"),
        ("C-?", b"\x7f"),
        ("M-x", b"\x1bx"),
        ("Enter", b"\r"),
        ("Up", b"\x1b[A"),
        ("F1", b"\x1bOP"),
        ("F12", b"\x1b[24~"),
        ("ls -la\n", b"ls -la\r"),
        ("Enter the room", b"Enter the room"),
        ("C-cc", b"C-cc"),
        ("", b""),
    ],
)
def test_names_are_keys_and_the_rest_is_typed(key: str, sent: bytes):
    assert encode_key(key) == sent


def test_several_are_typed_in_turn():
    assert encode_keys(["Escape", ":wq", "Enter"]) == b"\x1b:wq\r"


@given(st.text(alphabet=st.characters(blacklist_characters="\r", blacklist_categories=("Cs",)), min_size=4))
def test_text_arrives_but_for_its_newlines(text: str):
    if encode_key(text) == text.replace("\n", "\r").encode():
        return
    assert text in {
        "Enter",
        "BTab",
        "Space",
        "Escape",
        "BSpace",
        "Down",
        "Right",
        "Left",
        "Home",
        "PPage",
        "PageUp",
        "NPage",
        "PageDown",
    }
