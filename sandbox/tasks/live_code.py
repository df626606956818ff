"""Recognises connections to this machine in code by its words, and finds code in shell scripts. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from sandbox.tasks.live_commands import LOCAL_ADDRESS, LiveFindings

OTHER_LANGUAGES = (".js", ".mjs", ".cjs", ".ts", ".pl", ".php", ".rb")
"""Ends of the names of files in other languages than Python and the shell's."""
_PROGRAMS = r"\b(?P<%s>python|node|deno|bun|perl|ruby|php)[\d.]*"
_EMBEDDED = re.compile(
    rf"{_PROGRAMS % 'program'}\s(?:[^\n;|&]{{0,400}}\s)?-(?:[A-Za-z]*[ceEpr]|-eval)\s*"
    r"(?P<quote>['\"])(?P<code>.*?)(?<!\\)(?P=quote)"
    rf"|{_PROGRAMS % 'reader'}\b[^\n]{{0,400}}<<-?[ \t]*"
    r"(?P<mark>['\"]?)(?P<end>\w+)(?P=mark)[^\n]{0,400}\n",
    re.DOTALL,
)
"""Code in a shell script: an argument, or the line before a here-document."""
_ESCAPED = re.compile(r'\\(["$`\\])')
"""Matches what a backslash keeps from the shell between double quotes."""
_FIRST_WORD = re.compile(r"^[ \t]*(\w+)", re.MULTILINE)
_CONNECTS = re.compile(
    r"\b(?:urlopen|urlretrieve|requests\.\w+|httpx\.\w+|aiohttp|HTTPS?Connection|create_connection|fetch|axios|WebSocket|"
    r"https?\.(?:get|request)|require\(\W(?:node:)?(?:https?|net)\W\)|net\.(?:connect|createConnection)|LWP|"
    r"HTTP::Tiny|IO::Socket|Net::HTTP|TCPSocket|open-uri|curl_init|fsockopen|file_get_contents)(?!\w)|(?<!sqlite3)\.connect(?:_ex)?\("
)
_GIVEN = re.compile(
    r"\bargv\b|@?\bARGV\b|\benviron\b|\bgetenv\b|\bENV\b|\bprocess\.env\b|\bparse_args\b|\binput\(|\bstdin\b"
)
_REMOTE = re.compile(r"\bhttps?://\w")
_SERVES = re.compile(r"\.listen\(|\b(?:TCPServer|ThreadingHTTPServer|createServer|spawn|fork)\b")


class EmbeddedCode(NamedTuple):
    """Code that a shell script has in itself."""

    program: str
    """The program that runs it, without its version."""
    code: str


def read_code(code: str, *, local: bool) -> LiveFindings:
    """Read code of another language than Python and the shell's; ``local``: addresses that it does not give may be
    this machine's."""
    return LiveFindings(tuple(find_connections(code, local=local)), bool(_SERVES.search(code)))


def find_connections(code: str, *, local: bool) -> Iterator[str]:
    """Yield the lines in which code connects to this machine, or to what it does not name if that may be ``local``."""
    if LOCAL_ADDRESS.search(code) or (local and (_GIVEN.search(code) or not _REMOTE.search(code))):
        yield from (line.strip() for line in code.splitlines() if _CONNECTS.search(line))


def find_embedded_code(script: str) -> Iterator[EmbeddedCode]:
    """Yield the code in a shell script, in its order."""
    ends: dict[str, list[int]] = {}
    for word in _FIRST_WORD.finditer(script):
        ends.setdefault(word[1], []).append(word.start())
    at = 0
    while found := _EMBEDDED.search(script, at):
        at = found.end()
        if found["code"] is not None:
            quoted = found["quote"] == '"'
            yield EmbeddedCode(found["program"], _ESCAPED.sub(r"\1", found["code"]) if quoted else found["code"])
            continue
        places = ends.get(found["end"], [])
        index = bisect_left(places, at)
        if index < len(places):
            yield EmbeddedCode(found["reader"], script[at : places[index]])
            at = places[index]
