"""Markdown blocks between lines of three backticks or more.

A block ends at the first line of at least as many backticks as it begins with.  Such lines inside a here-document of a
block of bash are the document's.  All of it takes linear time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

_OPENING = re.compile(r"^[^\S\n]*(`{3,})([^`\n]*)$", re.MULTILINE)
_SHELL = re.compile(
    r"""
      \\. | '[^']*' | "(?:\\.|[^"\\$]|\$(?!\())*" | (?<!\S)\#[^\n]* | <<<   # have no here-document
    | <<(?P<tabs>-?)[^\S\n]*
      (?P<word> (?!=) (?: \$?(?:'[^'\n]+' | "[^"\n]+") | \\[^\n] | \$(?!\() | [^\s|&;()<>'"\\`$] )+ )
    | (?P<line>\n)
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTING = re.compile(r"""\$?(?:'(.+?)' | "(.+?)") | \\(.)""", re.VERBOSE)
_OPERATOR = re.compile(r"[<>|&;(){}]")
_LINE = re.compile(r"^\t*+(.*)\n", re.MULTILINE)


class FencedBlock(NamedTuple):
    """One block and the language that its first line names."""

    language: str
    body: str


class UnclosedBlockError(Exception):
    """A block has no end: the lines of backticks do not come in pairs."""


class _Span(NamedTuple):
    begin: int
    end: int


class _Documents(NamedTuple):
    """The here-documents of a line, which begin after it."""

    begin: int
    end: int
    operators: Sequence[_Span] = ()
    """The places in the line of the operators whose documents have an end."""


class _Delimiter(NamedTuple):
    operator: _Span
    word: str
    strips_tabs: bool


def parse_fenced_blocks(text: str) -> list[FencedBlock]:
    """Return the blocks in order; CRLF ends a line as LF does.  Raises :class:`UnclosedBlockError`, so half of a
    command is never taken for one."""
    text = text.replace("\r\n", "\n")
    found: list[FencedBlock] = []
    documents = _HereDocuments(text)
    at = 0
    while opening := _OPENING.search(text, at):
        language, begin = opening[2].strip(), min(opening.end() + 1, len(text))
        closing = _find_closing(text, begin, len(opening[1]), documents if language == "bash" else None)
        at = min(closing.end + 1, len(text))
        found.append(FencedBlock(language, text[begin : max(begin, closing.begin - 1)]))
    return found


def has_fences(body: str) -> bool:
    """Return whether a block's body has lines that would begin a block."""
    return _OPENING.search(body) is not None


def find_endless_documents(command: str) -> set[str]:
    """Return the words after ``<<`` in a shell's command that no later line ends: of here-documents without an end, or
    of arithmetic."""
    documents = _HereDocuments(f"{command}\n")
    for _ in documents.between_lines(0):
        pass
    return documents.endless


def unquote_delimiter(word: str) -> str:
    """Return the line that ends a here-document after ``<<`` and ``word``."""
    return _QUOTING.sub(lambda found: found[found.lastindex or 0], word)


def leave_out_documents(command: str) -> str:
    """Return a shell's command that reads nothing in place of each here-document that has an end."""
    text, kept, at = f"{command}\n", list[str](), 0
    for documents in _HereDocuments(text).between_lines(0):
        for operator in documents.operators:
            kept += text[at : operator.begin], "</dev/null"
            at = operator.end
        kept.append(text[at : documents.begin])
        at = documents.end
    return "".join(kept)


def count_operators(command: str) -> int:
    """Return how many characters of a shell's command, outside its here-documents, may be operators."""
    count = at = 0
    for document in _HereDocuments(f"{command}\n").between_lines(0):
        count += len(_OPERATOR.findall(command, at, document.begin))
        at = document.end
    return count


def _find_closing(text: str, begin: int, backticks: int, shell: _HereDocuments | None) -> _Span:
    documents = shell.between_lines(begin) if shell else iter(())
    document = next(documents, None)
    for line in re.compile(rf"^[^\S\n]*`{{{backticks},}}[^\S\n]*$", re.MULTILINE).finditer(text, begin):
        while document and document.end <= line.start():
            document = next(documents, None)
        if document is None or line.start() < document.begin:
            return _Span(*line.span())
    raise UnclosedBlockError


class _HereDocuments:
    """The here-documents of a text, as a shell reads it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.endless: set[str] = set()
        """Words that no line ended."""

    def between_lines(self, at: int) -> Iterator[_Documents]:
        """Yield what lies between the lines of a shell's commands: the line's here-documents, empty if it has none.  A
        here-document without an end is none."""
        delimiters: list[_Delimiter] = []
        while token := _SHELL.search(self._text, at):
            at = token.end()
            if word := token["word"]:
                delimiters.append(_Delimiter(_Span(*token.span()), unquote_delimiter(word), bool(token["tabs"])))
            elif token["line"]:
                begin, operators = at, list[_Span]()
                for delimiter in delimiters:
                    if (end := self._end(delimiter, at)) is None:
                        self.endless.add(delimiter.word)
                    else:
                        at = end
                        operators.append(delimiter.operator)
                delimiters = []
                yield _Documents(begin, at, operators)
        yield _Documents(len(self._text) + 1, len(self._text) + 1)

    def _end(self, delimiter: _Delimiter, at: int) -> int | None:
        lines = self._lines.get((delimiter.word, delimiter.strips_tabs), [])
        place = bisect_left(lines, (at,))
        return lines[place].end if place < len(lines) else None

    @cached_property
    def _lines(self) -> dict[tuple[str, bool], list[_Span]]:
        """A line, and whether tabs before it are left out → where there are such lines."""
        found: defaultdict[tuple[str, bool], list[_Span]] = defaultdict(list)
        for line in _LINE.finditer(self._text):
            span = _Span(*line.span())
            found[line[0][:-1], False].append(span)
            found[line[1], True].append(span)
        return found
