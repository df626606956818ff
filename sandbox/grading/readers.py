"""The kit's tools that only read and print, with the options that busybox and GNU understand alike.  Pure.

What busybox does not know ends in an error, which a test script may take for an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from getopt import GetoptError, getopt
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


def understands(tool: str, arguments: Sequence[str]) -> bool:
    """Whether it is one of them and knows these options; ``arguments`` are without the quotes around them."""
    letters = _OPTIONS.get(tool)
    if letters is None:
        return False
    left = [each for each in takewhile(lambda each: each != "--", arguments) if not _counts(tool, each)]
    try:
        while left:  # options may stand behind what is none
            left = getopt(left, letters)[1][1:]
    except GetoptError:
        return False
    return True


def _counts(tool: str, word: str) -> bool:
    """``head -5`` is ``head -n 5``."""
    return tool in ("head", "tail") and word.startswith("-") and word[1:].isdigit()
