"""Whether one of a test script's tools writes or removes something among the tests, or may.  Pure.

What the agent left would be a test there, a ``conftest.py`` or the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from sandbox.grading.places import QUOTES, Places

_WRITERS = frozenset((
    "cp", "dd", "find", "ln", "mv", "rm", "rmdir", "sed", "shred", "shuf", "sort", "tar", "tee", "truncate", "uniq",
    "unlink", "unzip", "uudecode", "wget", "xxd",
))  # fmt: skip
_ANYWHERE = "/"
_NO_FILES = re.compile(r"-[a-zA-Z]*[lptZ][a-zA-Z]*")
"""unzip only tells or prints."""
_LETTERS = re.compile(r"-[a-zA-Z]+")
_IN_PLACE = re.compile(r"-[a-zA-Z]*i.*|--in-place.*")
_SED_FILE = re.compile(r"w(?=\s*\S*(?:tests|proc|\.\.))")
_AWK_FILE = re.compile(r"print[^;}\n]*>(?!>?\s*\"/(?:dev|logs|tmp)/[\w.-]+\")")


def may_write_among_tests(program: str, arguments: Sequence[str], places: Places) -> bool:
    """``arguments`` have their quotes."""
    if program == "awk":
        return any(map(_AWK_FILE.search, arguments))
    if program == "sed" and _script_may(arguments, places):
        return True
    return program in _WRITERS and (
        any(_may_be_option(each, places) for each in arguments)
        or any(map(places.may_be_tests, _written(program, [each.translate(QUOTES) for each in arguments])))
    )


def _may_be_option(word: str, places: Places) -> bool:
    """Whether an expansion says it, and may be one, or several words."""
    if not word.lstrip('"').startswith(("$", "`")):
        return False
    read = places.read(word)
    return read is None or any(each.startswith("-") or re.search(r"\s", each) for each in read)


def _script_may(arguments: Sequence[str], places: Places) -> bool:
    """Whether sed's own program says so, or only data would tell."""
    programs = _valued(arguments, "e", "--expression") or _operands(arguments)[:1]
    texts = [places.read(each) for each in programs]
    return bool(_valued(arguments, "f", "--file")) or any(
        text is None or any(_SED_FILE.search(each) or (places.strays and "w" in each) for each in text)
        for text in texts
    )


def _written(program: str, arguments: Sequence[str]) -> Sequence[str]:
    """What a tool writes or removes, the working directory where nothing says it."""
    operands = _operands(arguments)
    written: Sequence[str] = ()
    match program:
        case "mv" | "rm" | "rmdir" | "shred" | "tee" | "truncate" | "unlink":
            written = [*operands, *_valued(arguments, "t", "--target-directory")]
        case "cp" | "ln":
            written = _valued(arguments, "t", "--target-directory") or (operands[-1:] if operands[1:] else ["."])
        case "dd":
            written = [each.removeprefix("of=") for each in operands if each.startswith("of=")]
        case "find" if "-delete" in arguments:
            written = [*takewhile(lambda each: not each.startswith("-"), arguments)] or ["."]
        case "sed" if any(map(_IN_PLACE.fullmatch, arguments)):
            written = operands
        case "shuf" | "sort":
            written = _valued(arguments, "o", "--output")
        case "tar":
            written = _unpacked(arguments)
        case "uniq" | "xxd":
            written = operands[1:]
        case "unzip" if not any(map(_NO_FILES.fullmatch, arguments)):
            written = _valued(arguments, "d") or ["."]
        case "uudecode":
            written = _valued(arguments, "o") or [_ANYWHERE]  # else what it reads says it
        case "wget":
            into = _valued(arguments, "OP", "--output-document", "--directory-prefix") or ["."]
            written = [*into, *_valued(arguments, "oa", "--output-file", "--append-output")]
        case _:
            pass
    return written


def _unpacked(arguments: Sequence[str]) -> Sequence[str]:
    """What tar writes: the folder that it fills, or, of what is no plain ``x``, anything that it names."""
    into = _valued(arguments, "C", "--directory")
    first, *rest = arguments or ("",)
    letters = "".join(each for each in (f"-{first.removeprefix('-')}", *rest) if _LETTERS.fullmatch(each))
    if "t" in letters or ("x" in letters and "O" in letters):
        return ()
    if "x" in letters and "P" not in letters and (first.startswith("-") or "C" not in first):
        return into or ["."]
    return [".", *_operands(arguments), *into]


def _operands(arguments: Sequence[str]) -> list[str]:
    return [each for each in arguments if not each.startswith("-") or each == "-"]


def _valued(arguments: Sequence[str], letters: str, *names: str) -> list[str]:
    """Of options by these letters or names the values, ``-o x``, ``-uo x``, ``-ox``, ``--name=x`` and ``--name x``."""
    named = re.compile(rf"-[a-zA-Z]*?[{letters}](.*)|(?:{'|'.join(names) or '(?!)'})(?:=(.*))?")
    pairs = zip(arguments, (*arguments[1:], ""), strict=True)
    return [found[1] or found[2] or value for word, value in pairs if (found := named.fullmatch(word))]
