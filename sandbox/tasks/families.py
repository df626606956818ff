"""Small task families: each turns a draw into an instruction, a right command, usual mistakes, files and checks.

Every family is solved by one short command.  A mistake is a plausible command that leaves a wrong final state.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sandbox.tasks.checks import Check, holds, lists, only, text
from sandbox.tasks.vocabulary import EXTENSIONS, Draw


@dataclass(frozen=True, slots=True)
class Sketch:
    """One instance, before it becomes a task.  Paths are relative to the working directory."""

    instruction: str
    command: str
    mistakes: tuple[str, ...]
    checks: tuple[Check, ...]
    files: dict[str, str | bytes] = field(default_factory=dict[str, "str | bytes"])


Family = Callable[[Draw], Sketch]


def _derived(
    instruction: str, *, source: str, lines: Sequence[str], target: str, result: Sequence[str], commands: Sequence[str]
) -> Sketch:
    """A family that reads one file and writes another: the result is right, the source unchanged, nothing else made."""
    return Sketch(
        instruction,
        commands[0],
        tuple(commands[1:]),
        (
            Check("result", holds(target, result)),
            Check("source_unchanged", holds(source, lines)),
            Check("nothing_else", only(".", [source, target])),
        ),
        {source: text(lines)},
    )


def create(d: Draw) -> Sketch:
    a, b, c = d.names[:3]
    return Sketch(
        f"Create the file {a}.txt with the text {b} {c}.",
        f"echo {b} {c} > {a}.txt",
        (f"echo {b} > {a}.txt", f"echo {b} {c} > {a}.log", f"echo {b} {c}"),
        (Check("content", holds(f"{a}.txt", [f"{b} {c}"])), Check("nothing_else", only(".", [f"{a}.txt"]))),
    )


def append(d: Draw) -> Sketch:
    a, b = d.names[:2]
    lines = d.filler[: d.size]
    return Sketch(
        f"Append the line {b} to the file {a}.log.",
        f"echo {b} >> {a}.log",
        (f"echo {b} > {a}.log", f"echo {b} >> {a}.txt", f"echo {b}"),
        (Check("content", holds(f"{a}.log", [*lines, b])), Check("nothing_else", only(".", [f"{a}.log"]))),
        {f"{a}.log": text(lines)},
    )


def move(d: Draw) -> Sketch:
    a, b = d.names[:2]
    return Sketch(
        f"Rename the file {a}.txt to {b}.txt.",
        f"mv {a}.txt {b}.txt",
        (f"cp {a}.txt {b}.txt", f"mv {b}.txt {a}.txt", f"mv {a}.txt {b}"),
        (Check("content", holds(f"{b}.txt", d.filler[: d.size])), Check("source_gone", only(".", [f"{b}.txt"]))),
        {f"{a}.txt": text(d.filler[: d.size])},
    )


def copy(d: Draw) -> Sketch:
    a, b = d.names[:2]
    lines = d.filler[: d.size]
    return _derived(
        f"Copy the file {a}.txt to {b}.txt.",
        source=f"{a}.txt",
        lines=lines,
        target=f"{b}.txt",
        result=lines,
        commands=(f"cp {a}.txt {b}.txt", f"mv {a}.txt {b}.txt", f"cp {b}.txt {a}.txt", f"cp {a}.txt {b}"),
    )


def count(d: Draw) -> Sketch:
    a, b, c = d.names[:3]
    words = d.filler[: d.size]
    hits = set(sorted(words)[: d.lines])
    return _derived(
        f"Count the lines with {b} in {a}.log and save the number in {c}.txt.",
        source=f"{a}.log",
        lines=[f"{b} {word}" if word in hits else word for word in words],
        target=f"{c}.txt",
        result=[str(len(hits))],
        commands=(f"grep -c {b} {a}.log > {c}.txt", f"grep {b} {a}.log > {c}.txt", f"grep -v {b} {a}.log > {c}.txt"),
    )


def _unsorted(d: Draw, size: int) -> list[str]:
    """Lines that are neither in order nor in reverse order."""
    low, middle, high, *others = sorted(d.filler[:size])
    return [middle, high, low, *others]


def sort(d: Draw) -> Sketch:
    a, b = d.names[:2]
    lines = _unsorted(d, d.size)
    return _derived(
        f"Sort the lines of {a}.txt and save them in {b}.txt.",
        source=f"{a}.txt",
        lines=lines,
        target=f"{b}.txt",
        result=sorted(lines),
        commands=(f"sort {a}.txt > {b}.txt", f"sort -r {a}.txt > {b}.txt", f"cat {a}.txt > {b}.txt"),
    )


def reverse_sort(d: Draw) -> Sketch:
    a, b = d.names[:2]
    lines = _unsorted(d, d.size)
    return _derived(
        f"Sort the lines of {a}.txt in reverse and save them in {b}.txt.",
        source=f"{a}.txt",
        lines=lines,
        target=f"{b}.txt",
        result=sorted(lines, reverse=True),
        commands=(f"sort -r {a}.txt > {b}.txt", f"sort {a}.txt > {b}.txt", f"sort -n {a}.txt > {b}.txt"),
    )


def unique(d: Draw) -> Sketch:
    a, b = d.names[:2]
    repeats = 1 + d.column
    once = _unsorted(d, d.size - repeats)
    return _derived(
        f"Sort the lines of {a}.txt without repeats and save them in {b}.txt.",
        source=f"{a}.txt",
        lines=[*once, *once[:repeats]],
        target=f"{b}.txt",
        result=sorted(once),
        commands=(f"sort -u {a}.txt > {b}.txt", f"sort {a}.txt > {b}.txt", f"sort -r {a}.txt > {b}.txt"),
    )


def first_lines(d: Draw) -> Sketch:
    a, b = d.names[:2]
    lines = d.filler[: d.size]
    return _derived(
        f"Save the first {d.lines} lines of {a}.log in {b}.txt.",
        source=f"{a}.log",
        lines=lines,
        target=f"{b}.txt",
        result=lines[: d.lines],
        commands=(
            f"head -n {d.lines} {a}.log > {b}.txt",
            f"tail -n {d.lines} {a}.log > {b}.txt",
            f"head -n {d.lines} {a}.txt > {b}.txt",
        ),
    )


def last_lines(d: Draw) -> Sketch:
    a, b = d.names[:2]
    lines = d.filler[: d.size]
    return _derived(
        f"Save the last {d.lines} lines of {a}.log in {b}.txt.",
        source=f"{a}.log",
        lines=lines,
        target=f"{b}.txt",
        result=lines[-d.lines :],
        commands=(
            f"tail -n {d.lines} {a}.log > {b}.txt",
            f"head -n {d.lines} {a}.log > {b}.txt",
            f"tail -n {d.lines} {a}.txt > {b}.txt",
        ),
    )


def mode(d: Draw) -> Sketch:
    a = d.names[0]
    lines = [f"echo {word}" for word in d.filler[: d.size]]
    return Sketch(
        f"Set the mode of {a}.sh to {d.mode}.",
        f"chmod {d.mode} {a}.sh",
        (f"chmod +r {a}.sh", f"chmod {d.mode} {a}.txt", f"chmod {a}.sh {d.mode}"),
        (
            Check("mode", f'[ "$(stat -c %a {a}.sh)" = {d.mode} ]'),
            Check("content_unchanged", holds(f"{a}.sh", lines)),
        ),
        {f"{a}.sh": text(lines)},
    )


def directories(d: Draw) -> Sketch:
    a, b, c = d.names[:3]
    return Sketch(
        f"Make the directory {a}/{b}/{c}.",
        f"mkdir -p {a}/{b}/{c}",
        (f"mkdir {a}/{b}/{c}", f"mkdir -p {a}/{b}", f"mkdir -p {a}/{c}"),
        (Check("made", f"[ -d {a}/{b}/{c} ]"), Check("nothing_else", f"{only('.', [a])} && {only(a, [b])}")),
    )


def find(d: Draw) -> Sketch:
    a, b = d.names[:2]
    folder, *names = d.filler[: 1 + d.size]
    others = [e for e in EXTENSIONS if e != d.extension]
    hits = 2 + d.column
    paths = [
        f"{a}/{f'{folder}/' if n % 2 else ''}{name}.{d.extension if n < hits else others[n % len(others)]}"
        for n, name in enumerate(names)
    ]
    return Sketch(
        f"List the files under {a} that end in .{d.extension} and save the list in {b}.out.",
        f"find {a} -name '*.{d.extension}' > {b}.out",
        (f"find {a} > {b}.out", f"find {a} -name '*.{d.extension}'", f"find {a} -name '{d.extension}' > {b}.out"),
        (Check("result", lists(f"{b}.out", paths[:hits])), Check("nothing_else", only(".", [a, f"{b}.out"]))),
        dict.fromkeys(paths, ""),
    )


def total(d: Draw) -> Sketch:
    a, b = d.names[:2]
    rows = [d.numbers[n : n + 3] for n in range(0, 3 * d.size, 3)]
    return _derived(
        f"Add up column {d.column} of {a}.csv and save the sum in {b}.txt.",
        source=f"{a}.csv",
        lines=[",".join(map(str, row)) for row in rows],
        target=f"{b}.txt",
        result=[str(sum(row[d.column - 1] for row in rows))],
        commands=(
            f"awk -F, '{{s+=${d.column}}} END {{print s}}' {a}.csv > {b}.txt",
            f"awk -F, '{{s+=${d.column}}} END {{print s}}' {a}.csv",
            f"awk -F, '{{s=${d.column}}} END {{print s}}' {a}.csv > {b}.txt",
        ),
    )


def json_field(d: Draw) -> Sketch:
    key, a, b = d.names[:3]
    value, *others = d.filler[: 2 * (d.size - 3) + 1]
    pairs = list(zip(others[::2], others[1::2], strict=True))
    pairs.insert(d.lines, (key, value))
    body = [f'  "{k}": "{v}"{"," if n + 1 < len(pairs) else ""}' for n, (k, v) in enumerate(pairs)]
    return _derived(
        f'Save the value of "{key}" in {a}.json in {b}.txt.',
        source=f"{a}.json",
        lines=["{", *body, "}"],
        target=f"{b}.txt",
        result=[value],
        commands=(
            f"awk -F'\"' '/{key}/{{print $4}}' {a}.json > {b}.txt",
            f"awk -F'\"' '/{key}/{{print $2}}' {a}.json > {b}.txt",
            f"awk '/{key}/{{print $4}}' {a}.json > {b}.txt",
        ),
    )


def _tar(name: str, content: str) -> bytes:
    """The smallest archive of one small file, equal for equal input."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content.encode()))
    return out.getvalue()[: 4 * tarfile.BLOCKSIZE]


def unpack(d: Draw) -> Sketch:
    a, inside = d.names[0], d.filler[0]
    lines = d.filler[1 : 1 + d.size]
    return Sketch(
        f"Unpack the archive {a}.tar.",
        f"tar -xf {a}.tar",
        (f"tar -tf {a}.tar", f"tar -cf {a}.tar", f"tar -xf {a}.txt"),
        (
            Check("content", holds(f"{inside}.md", lines)),
            Check("nothing_else", only(".", [f"{a}.tar", f"{inside}.md"])),
        ),
        {f"{a}.tar": _tar(f"{inside}.md", text(lines))},
    )


def link(d: Draw) -> Sketch:
    a, b = d.names[:2]
    lines = d.filler[: d.size]
    return Sketch(
        f"Make a symbolic link {a} that points to {b}.txt.",
        f"ln -s {b}.txt {a}",
        (f"ln {b}.txt {a}", f"ln -s {a} {b}.txt", f"cp {b}.txt {a}"),
        (
            Check("points_there", f'[ "$(readlink {a})" = {b}.txt ]'),
            Check("target_unchanged", f"{holds(f'{b}.txt', lines)} && {only('.', [a, f'{b}.txt'])}"),
        ),
        {f"{b}.txt": text(lines)},
    )


def fix(d: Draw) -> Sketch:
    a, b, c = d.names[:3]
    comments = [f"# {word}" for word in d.filler[: d.size - 1]]
    return Sketch(
        f'The script {a}.sh prints "{b}" but should print "{c}". Mend it.',
        f"sed -i s/{b}/{c}/ {a}.sh",
        (f"sed s/{b}/{c}/ {a}.sh", f"sed -i s/{c}/{b}/ {a}.sh", f"sed -i s/{b}/{c}/ {a}.txt"),
        (Check("mended", holds(f"{a}.sh", [*comments, f"echo {c}"])), Check("nothing_else", only(".", [f"{a}.sh"]))),
        {f"{a}.sh": text([*comments, f"echo {b}"])},
    )


def append_first_lines(d: Draw) -> Sketch:
    a, b = d.names[:2]
    lines = d.filler[: d.size]
    before = d.filler[d.size : 2 * d.size]
    return Sketch(
        f"Append the first {d.lines} lines of {a}.log to the file {b}.txt.",
        f"head -n {d.lines} {a}.log >> {b}.txt",
        (f"head -n {d.lines} {a}.log > {b}.txt", f"tail -n {d.lines} {a}.log >> {b}.txt", f"cat {a}.log >> {b}.txt"),
        (
            Check("content", holds(f"{b}.txt", [*before, *lines[: d.lines]])),
            Check("source_unchanged", holds(f"{a}.log", lines)),
            Check("nothing_else", only(".", [f"{a}.log", f"{b}.txt"])),
        ),
        {f"{a}.log": text(lines), f"{b}.txt": text(before)},
    )


FAMILIES: dict[str, Family] = {
    "create": create,
    "append": append,
    "move": move,
    "copy": copy,
    "count": count,
    "sort": sort,
    "reverse_sort": reverse_sort,
    "unique": unique,
    "first_lines": first_lines,
    "last_lines": last_lines,
    "mode": mode,
    "directories": directories,
    "find": find,
    "total": total,
    "json_field": json_field,
    "unpack": unpack,
    "link": link,
    "fix": fix,
    "append_first_lines": append_first_lines,
}
"""In the order in which training takes them in turn."""

HELD_OUT_FAMILY = "append_first_lines"
"""The family that, unless told otherwise, only evaluation sees; it combines ``first_lines`` and ``append``."""
