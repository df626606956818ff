"""Recognises quotes of a reply in later texts.  Pure.

A harness hands a plan or a report on as it likes: as a list, inside a JSON string, cut.  So texts are compared by their
words, whatever stands between these, and a quote shares a run of words that is too long to be chance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_WORD = re.compile(r"\w+")
_ESCAPE = re.compile(r"(?<!\\)\\++(?:[nrt]|u([0-9a-fA-F]{4}))")
_RUN_WORDS = 4
_RUN_CHARS, _MOST_CHARS = 15, 20
"""Fewest characters of a run, and the number after which it is cut, as a harness may cut what it quotes."""


def find_runs(texts: Iterable[str]) -> set[str]:
    """Return the runs of words of ``texts``: four words with at least 15 characters, or their first 20 characters,
    beginning with each word."""
    return {run for text in texts for run in _runs(text)}


def _runs(text: str) -> Iterator[str]:
    words = _WORD.findall(_ESCAPE.sub(_unescape, text).casefold())
    for index in range(len(words)):
        following = words[index : index + _RUN_WORDS]
        run = " ".join(following)[:_MOST_CHARS]
        if len(run) == _MOST_CHARS or (len(run) >= _RUN_CHARS and len(following) == _RUN_WORDS):
            yield run


def _unescape(escape: re.Match[str]) -> str:
    """Return the character of an escape of JSON."""
    return chr(int(escape[1], 16)) if escape[1] else " "
