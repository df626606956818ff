"""The kit's tools that only read and print, with the options that busybox and GNU understand alike.  Pure.

What busybox does not know ends in an error, which a test script may take for an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

_SUM = "cw"
_OPTIONS = {
    "base64": "dw:", "basename": "as:", "cat": "nbvteA", "cmp": "lsn:", "cut": "b:c:d:f:s", "date": "uR",
    "diff": "abBdiqstTwuU:L:", "dirname": "", "egrep": "HhnlLcoqvsriwxzm:A:B:C:e:f:", "expr": "",
    "fgrep": "HhnlLcoqvsriwxzm:A:B:C:e:f:", "grep": "HhnlLcoqvsriwxFEzm:A:B:C:e:f:", "head": "n:c:qv", "id": "ugGnr",
    "ls": "1aAdLHRFplinshrSt", "md5sum": _SUM, "mkdir": "pm:", "nproc": "", "od": "abcdfhilovxt:A:N:j:w:",
    "paste": "d:s", "readlink": "fnv", "realpath": "", "rev": "", "seq": "ws:", "sha1sum": _SUM, "sha256sum": _SUM,
    "sha512sum": _SUM, "sleep": "", "stat": "Lc:", "strings": "ft:n:", "tac": "", "tail": "n:c:qv", "tee": "a",
    "tr": "cds", "uname": "amnrspvio", "wc": "cmlwL", "which": "a", "whoami": "", "xzcat": "", "zcat": "",
}  # fmt: skip
"""As getopt has them: with a value where a colon follows.  No option of theirs writes or starts anything."""
_COUNTS = frozenset(("head", "tail"))
"""``head -5`` is ``head -n 5``."""


def understands(tool: str, arguments: Sequence[str]) -> bool:
    """Whether it is one of them and knows these options; ``arguments`` are without the quotes around them."""
    letters = _OPTIONS.get(tool)
    if letters is None:
        return False
    left = iter(list(takewhile(lambda each: each != "--", arguments)))
    for word in left:
        if not word.startswith("-") or word == "-" or (tool in _COUNTS and word[1:].isdigit()):
            continue
        if not _is_known(word[1:], letters):
            return False
        if word[-1] + ":" in letters and _waits(word[1:], letters):
            next(left, "")
    return True


def _is_known(word: str, letters: str) -> bool:
    """Each letter is an option, up to one that takes the rest for its value."""
    for letter in word:
        if letter == ":" or letter not in letters:
            return False
        if f"{letter}:" in letters:
            return True
    return True


def _waits(word: str, letters: str) -> bool:
    """Whether the value of its last letter is the next word."""
    return not any(f"{letter}:" in letters for letter in word[:-1])
