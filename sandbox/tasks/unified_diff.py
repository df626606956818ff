"""Patches in the form of ``git diff``, applied to texts. Pure.

Only text is changed, and only where a hunk says: a patch that has moved does not apply.  Binary files, links, renames
and copies are read, and not applied.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_GIT_HEADER = re.compile(r'diff --git (?:(a/.++)|("a/(?:[^"\\]|\\.)++") "b/.+")\s*+')
"""Begins the part of a file; if its name stays, an empty file has no other line with its name."""
_MOVED = re.compile(r"(?:rename|copy) (from|to) (.++)\s*+")
_MODE = re.compile(r"(new|deleted)(?: file)? mode (\d+)\s*")
_NOT_TEXT = re.compile(
    r"(?:Binary files .*+|GIT binary patch|(?:rename|copy) from .*+|new(?: file)? mode 1[26]0000)\s*+"
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_NO_FILE = "/dev/null"


class PatchError(ValueError):
    """The patch cannot be read, or does not apply; the message is a clause without a subject."""


@dataclass(slots=True)
class _Hunk:
    line: int
    """Number of the first old line, from 0; where there is none, of the line before which new ones come."""
    old: list[str] = field(default_factory=list[str])
    new: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _FilePatch:
    old_path: str
    """Empty for a new file."""
    new_path: str
    """Empty for a removed file."""
    hunks: list[_Hunk] = field(default_factory=list[_Hunk])
    executable: bool | None = None
    """None if the patch does not say."""
    not_text: str = ""
    """Line for which it cannot be applied."""


def touched_paths(patch: str) -> frozenset[str]:
    """Return the paths of the files that a patch changes, adds or removes.  Raises PatchError if it cannot be read."""
    return frozenset(path for each in _read(patch) for path in (each.old_path, each.new_path) if path)


def changed_modes(patch: str) -> dict[str, bool]:
    """Return whether each file whose mode a patch sets is executable then.  Raises PatchError."""
    return {each.new_path: each.executable for each in _read(patch) if each.new_path and each.executable is not None}


def apply_patch(patch: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return ``files``, texts by path, as the patch leaves them.  Raises PatchError if it changes nothing, cannot be
    read, or does not apply."""
    changed, found = dict(files), _read(patch)
    if not found:
        raise PatchError("has no change of a file in it")
    for each in found:
        if each.not_text:
            raise PatchError(f"is not plain text: {each.not_text}")
        if each.old_path == each.new_path and not each.hunks and each.executable is None:
            raise PatchError(f"has no change of {each.old_path} in it")
        text = ""
        if each.old_path:
            if each.old_path not in changed:
                raise PatchError(f"does not apply: there is no {each.old_path}")
            text = changed.pop(each.old_path)
        elif each.new_path in changed:
            raise PatchError(f"does not apply: there is a {each.new_path} already")
        result = _apply(each, text)
        if each.new_path:
            changed[each.new_path] = result
        elif result:
            raise PatchError(f"does not apply: it removes {each.old_path}, but not all of its lines")
    return changed


def _apply(patch: _FilePatch, text: str) -> str:
    lines, result, at = _LINE.findall(text), list[str](), 0
    for hunk in patch.hunks:
        end = hunk.line + len(hunk.old)
        if hunk.line < at or lines[hunk.line : end] != hunk.old:
            raise PatchError(f"does not apply: {patch.old_path} has other lines at line {hunk.line + 1}")
        result += [*lines[at : hunk.line], *hunk.new]
        at = end
    return "".join([*result, *lines[at:]])


def _read(patch: str) -> list[_FilePatch]:
    """Return each file's part of a patch.  Raises PatchError."""
    lines: list[str] = _LINE.findall(patch)
    at, found = 0, [_FilePatch("", "")]
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith("--- ") and at < len(lines) and lines[at].startswith("+++ "):
            old_path, new_path = _path(line), _path(lines[at])
            if found[-1].hunks or not {old_path, new_path} <= {found[-1].old_path, found[-1].new_path, ""}:
                found.append(_FilePatch("", ""))
            found[-1].old_path, found[-1].new_path = old_path, new_path
            at += 1
            while at < len(lines) and (header := _HUNK.match(lines[at])):
                hunk, at = _read_hunk(lines, at + 1, header)
                found[-1].hunks.append(hunk)
        else:
            if line.startswith("diff --git "):
                found.append(_FilePatch("", ""))
            _read_header(line, found[-1])
    return [each for each in found if each.old_path or each.new_path or each.not_text]


def _read_header(line: str, found: _FilePatch) -> None:
    """Take what a line before a file's hunks says of it."""
    if _NOT_TEXT.fullmatch(line):
        found.not_text = line.strip()
    if match := _GIT_HEADER.fullmatch(line):
        name = _unquoted(match[2])[2:] if match[2] else _unchanged_name(match[1])
        found.old_path = found.new_path = name
    elif match := _MOVED.fullmatch(line):
        if match[1] == "from":
            found.old_path = _unquoted(match[2])
        else:
            found.new_path = _unquoted(match[2])
    elif match := _MODE.fullmatch(line):
        if match[1] == "deleted":
            found.new_path = ""
        else:
            found.executable = match[2] == "100755"
            if " file " in line:
                found.old_path = ""


def _read_hunk(lines: Sequence[str], at: int, header: re.Match[str]) -> tuple[_Hunk, int]:
    """Return the hunk whose lines begin at ``at``, and the number of the line behind it."""
    old_count, new_count = (1 if count is None else int(count) for count in header.groups()[1:])
    hunk = _Hunk(int(header[1]) - (old_count > 0))
    while len(hunk.old) < old_count or len(hunk.new) < new_count:
        if at == len(lines):
            raise PatchError("ends within a hunk")
        sign, content = lines[at][:1], lines[at][1:]
        at += 1
        kept = {" ": (hunk.old, hunk.new), "\n": (hunk.old, hunk.new), "-": (hunk.old,), "+": (hunk.new,)}.get(sign)
        if kept is None:
            raise PatchError(f"has a line in a hunk that begins with none of blank, - and +: {lines[at - 1].strip()}")
        content = content if sign != "\n" else "\n"
        if at < len(lines) and lines[at].startswith("\\"):
            content = content.removesuffix("\n")
            at += 1
        for side in kept:
            side.append(content)
    return hunk, at


def _path(line: str) -> str:
    name = _unquoted(line[4:].split("\t", 1)[0].rstrip("\r\n"))
    if name == _NO_FILE:
        return ""
    if not name.startswith(("a/", "b/")):
        raise PatchError(f"names a file in another way than git: {name}")
    return name[2:]


def _unchanged_name(names: str) -> str:
    """Return the name in ``a/NAME b/NAME``; empty if it changes."""
    name = names[2 : (len(names) - 1) // 2]
    return name if names == f"a/{name} b/{name}" else ""


def _unquoted(name: str) -> str:
    """Return a name that git has quoted, as in C, because of what is in it."""
    if not name.startswith('"'):
        return name
    try:
        return name[1:-1].encode().decode("unicode_escape").encode("latin-1").decode()
    except ValueError as error:
        raise PatchError(f"names a file that is not in UTF-8: {name}") from error
