"""Draws tokens in colours, and describes one of them.  Pure.

Tokens are coloured by one property at a time; tokens that the policy did not sample are always dim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rich.cells import cell_len
from rich.text import Text

from launch.monitor.api_types import TokenPage, TokenUse
from launch.monitor.tui.drawing.styles import BAD, GOOD, QUIET, WARN
from protocol.cli import formatting


class TokenColouring(StrEnum):
    """The property that the colour of a token shows."""

    PROBABILITY = "probability"
    STALENESS = "staleness"
    USE = "use in training"
    GAP = "log-probability gap"
    ADVANTAGE = "advantage"


_UNLIKELY = "bold bright_red"
_USES: Mapping[TokenUse, str] = {
    TokenUse.TRAINED: GOOD,
    TokenUse.WAITING: "cyan",
    TokenUse.STALE: WARN,
    TokenUse.DROPPED: BAD,
    TokenUse.UNTRAINED: QUIET,
    TokenUse.CLIP_HIGH: "blue",
    TokenUse.CLIP_LOW: "blue",
    TokenUse.CLIP_DUAL: "bold blue",
    TokenUse.CORRECTED: "underline blue",
}
LEGENDS: Mapping[TokenColouring, tuple[tuple[str, str], ...]] = {
    TokenColouring.PROBABILITY: ((GOOD, "≥ 0.9"), ("cyan", "≥ 0.5"), (WARN, "≥ 0.1"), (_UNLIKELY, "less")),
    TokenColouring.STALENESS: ((GOOD, "0 steps"), ("cyan", "1"), (WARN, "2"), (BAD, "more"), ("", "not used")),
    TokenColouring.USE: ((GOOD, "trained"), ("cyan", "waiting"), (WARN, "stale"), (BAD, "dropped"),
              ("blue", "clipped"), ("underline blue", "corrected")),
    TokenColouring.GAP: ((GOOD, "≤ 0.01"), ("cyan", "≤ 0.1"), (WARN, "≤ 0.5"), (_UNLIKELY, "more"), ("", "unknown")),
    TokenColouring.ADVANTAGE: ((GOOD, "above 0"), ("", "0 or none"), (BAD, "below 0")),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TokenPiece:
    """The part of one token in a line."""

    token: int
    """Index of the token in the page."""
    text: str


def token_style(page: TokenPage, at: int, by: TokenColouring) -> str:
    if page.use[at] in (TokenUse.PROMPT, TokenUse.OBSERVATION):
        return QUIET
    return _STYLES[by](page, at)


def _probability(page: TokenPage, at: int) -> str:
    return _step(page.probability[at], ((0.9, GOOD), (0.5, "cyan"), (0.1, WARN)), _UNLIKELY)


def _staleness(page: TokenPage, at: int) -> str:
    staleness = page.staleness[at]
    return "" if staleness is None else (GOOD, "cyan", WARN, BAD)[min(staleness, 3)]


def _gap(page: TokenPage, at: int) -> str:
    gap = page.logprob_gap[at]
    return _step(None if gap is None else -abs(gap), ((-0.01, GOOD), (-0.1, "cyan"), (-0.5, WARN)), _UNLIKELY)


def _advantage(page: TokenPage, at: int) -> str:
    value = page.advantage[at]
    return "" if not value else GOOD if value > 0 else BAD


_STYLES: Mapping[TokenColouring, Callable[[TokenPage, int], str]] = {
    TokenColouring.PROBABILITY: _probability,
    TokenColouring.STALENESS: _staleness,
    TokenColouring.USE: lambda page, at: _USES.get(page.use[at], ""),
    TokenColouring.GAP: _gap,
    TokenColouring.ADVANTAGE: _advantage,
}


def _step(value: float | None, bounds: tuple[tuple[float, str], ...], least: str) -> str:
    """Return the style of the first bound that the value reaches."""
    return "" if value is None else next((found for bound, found in bounds if value >= bound), least)


def wrap_tokens(page: TokenPage, width: int) -> list[list[TokenPiece]]:
    """Wrap tokens into lines of at most ``width`` cells; every token appears, in order."""
    lines: list[list[TokenPiece]] = [[]]
    room = width
    for token, text in enumerate(page.text):
        for line in _shown(text).splitlines(keepends=True):
            for part in _parts(line.removesuffix("\n"), room, width):
                if lines[-1] and cell_len(part) > room:
                    lines.append([])
                    room = width
                lines[-1].append(TokenPiece(token, part))
                room -= cell_len(part)
            if line.endswith("\n"):
                lines.append([])
                room = width
    return lines


def _shown(text: str) -> str:
    """Return a token's text with visible signs for tabs, line ends and empty tokens."""
    return text.replace("\t", "→   ").replace("\n", "⏎\n") or "·"


def _parts(text: str, room: int, width: int) -> Iterator[str]:
    """Split text into parts: the first fits into ``room`` cells, the others into ``width``."""
    part, left = "", room
    for char in text:
        cells = cell_len(char)
        if cells > left and part:
            yield part
            part, left = "", width
        elif cells > left:
            left = width
        part, left = part + char, left - cells
    if part:
        yield part


def render_tokens(page: TokenPage, lines: list[list[TokenPiece]], by: TokenColouring, cursor: int) -> Text:
    """Return all lines, with the token under the cursor highlighted."""
    return Text("\n", no_wrap=True).join(
        Text.assemble(
            *((piece.text, _cursor(token_style(page, piece.token, by), piece.token == cursor)) for piece in line)
        )
        for line in lines
    )


def _cursor(found: str, here: bool) -> str:
    return f"{found} reverse bold".strip() if here else found


def render_legend(by: TokenColouring) -> Text:
    parts = [part for style, label in LEGENDS[by] for part in (("██ ", style), (f"{label}  ", QUIET))]
    return Text.assemble((f"{by.value}  ", "bold"), *parts)


def describe_token(page: TokenPage, at: int) -> Text:
    """Return the facts about one token as one line."""
    if not page.id:
        return Text("no tokens", QUIET)
    known = [
        ("", f"token {page.start + at} of {page.total}"),
        ("", repr(page.text[at])),
        ("p ", formatting.format_decimal(page.probability[at], 3)),
        ("", formatting.humanize_name(page.use[at])),
        ("staleness ", formatting.MISSING if page.staleness[at] is None else str(page.staleness[at])),
        ("version ", page.version[at] or formatting.MISSING),
        ("gap ", formatting.format_short(page.logprob_gap[at])),
        ("advantage ", formatting.format_decimal(page.advantage[at], 3)),
    ]
    return Text("  ").join(Text.assemble((label, QUIET), value) for label, value in known)
