"""If these fail, one bad byte of a program's output costs an agent its terminal."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from sandbox.session.init_connection.init_messages import SlotOutput
from sandbox.session.terminal import SCREEN_BYTES, PseudoTerminal

ROWS, COLUMNS = 5, 20


class FakeSilentLink:
    """Accepts everything and answers nothing."""

    def __getattr__(self, name: str) -> None:
        raise AssertionError(f"a screen needs no {name}")


def terminal_with(*printed: bytes) -> PseudoTerminal:
    terminal = PseudoTerminal(FakeSilentLink(), 1, ROWS, COLUMNS)
    for each in printed:
        terminal.handle(SlotOutput(1, each))
    return terminal


pieces = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=10).map(str.encode),
    st.from_regex(rb"\x1b\[[?>=!]?[0-9;]{0,8}[@-~]", fullmatch=True),
    st.from_regex(rb"\x1b[ -/]?[0-~]", fullmatch=True),
    st.from_regex(rb"\x1b\][0-9]{0,3};[ -~]{0,9}(\x07|\x1b\\\\)?", fullmatch=True),
)


@example([b"\x1b[9J", b"\x1b[9K", b"\x1b[?1;2;3z"])
@given(st.lists(pieces, max_size=30))
def test_any_output_gives_a_screen_of_its_size(printed: list[bytes]):
    screen = terminal_with(*printed).screen()
    assert len(screen.lines) == ROWS
    assert 0 <= screen.cursor[0] < ROWS
    assert 0 <= screen.cursor[1] <= COLUMNS


@given(st.lists(st.text(alphabet="aé漢🙂\r\n", max_size=8), max_size=6), st.integers(1, 7))
def test_characters_may_be_cut_anywhere(printed: list[str], step: int):
    whole = "".join(printed).encode()
    cut = terminal_with(*(whole[at : at + step] for at in range(0, len(whole), step)))
    looked_at = terminal_with()
    for at in range(0, len(whole), step):
        looked_at.handle(SlotOutput(1, whole[at : at + step]))
        looked_at.screen()
    assert cut.screen() == looked_at.screen() == terminal_with(whole).screen()


def test_wide_characters_take_two_columns_and_appear_once():
    assert terminal_with("漢字x".encode()).screen().lines[0] == "漢字x"
    assert terminal_with("漢字x".encode()).screen().cursor == (0, 5)


def test_only_the_end_of_long_output_is_drawn():
    screen = terminal_with(b"x" * SCREEN_BYTES, b"\r\nlast").screen()
    assert screen.lines[-1] == "last"
