"""Files as one text, which a fuzzer can change: a line ``=== PATH`` before each, ``=x= PATH`` before an executable."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox.tasks.file_tree import TreeFile

_HEAD = re.compile(rb"^=([=x])= ([^\n]*)\n?", re.MULTILINE)


def join_folder(files: Mapping[str, TreeFile]) -> bytes:
    """Return the text of files, each of which ends with a line feed in it."""
    return b"\n".join(
        b"=%s= %s\n%s" % (b"x" if file.executable else b"=", path.encode(errors="surrogateescape"), file.data)
        for path, file in files.items()
    )


def split_folder(text: bytes) -> dict[str, TreeFile]:
    """Return the files of a text; what stands before the first head is left out."""
    heads = list(_HEAD.finditer(text))
    ends = [*(each.start() for each in heads[1:]), len(text)] if heads else []
    return {
        head[2].decode(errors="replace"): TreeFile(text[head.end() : end], head[1] == b"x")
        for head, end in zip(heads, ends, strict=True)
    }
