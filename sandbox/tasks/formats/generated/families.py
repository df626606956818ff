"""Small task families: each turns a draw into an instruction, a correct command, usual mistakes, files and checks.

Every family is solved by one short command. A mistake is a plausible command that leaves a wrong final state.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sandbox.tasks.formats.generated.shell_checks import (
    ShellCheck,
    as_text_file,
    file_holds,
    file_lists,
    folder_holds_only,
)
from sandbox.tasks.formats.generated.vocabulary import EXTENSIONS, DraftChoices


@dataclass(frozen=True, slots=True)
class TaskDraft:
    """One instance, before it becomes a task.  Paths are relative to the working directory."""

    instruction: str
    command: str
    mistakes: tuple[str, ...]
    checks: tuple[ShellCheck, ...]
    files: dict[str, str | bytes] = field(default_factory=dict[str, "str | bytes"])


TaskFamily = Callable[[DraftChoices], TaskDraft]


def _derived(
    instruction: str, *, source: str, lines: Sequence[str], target: str, result: Sequence[str], commands: Sequence[str]
) -> TaskDraft:
    """Draft a task that reads one file and writes another: the result is right, the source unchanged, nothing else
    made."""
    return TaskDraft(
        instruction,
        commands[0],
        tuple(commands[1:]),
        (
            ShellCheck("result", file_holds(target, result)),
            ShellCheck("source_unchanged", file_holds(source, lines)),
            ShellCheck("nothing_else", folder_holds_only(".", [source, target])),
        ),
        {source: as_text_file(lines)},
    )


def create(d: DraftChoices) -> TaskDraft:
    a, b, c = d.names[:3]
    return TaskDraft(
        f"Create the file {a}.txt with the text {b} {c}.",
        f"echo {b} {c} > {a}.txt",
        (f"echo {b} > {a}.txt", f"echo {b} {c} > {a}.log", f"echo {b} {c}"),
        (
            ShellCheck("content", file_holds(f"{a}.txt", [f"{b} {c}"])),
            ShellCheck("nothing_else", folder_holds_only(".", [f"{a}.txt"])),
        ),
    )


def append(d: DraftChoices) -> TaskDraft:
    a, b = d.names[:2]
    lines = d.filler[: d.size]
    return TaskDraft(
        f"Append the line {b} to the file {a}.log.",
        f"echo {b} >> {a}.log",
        (f"echo {b} > {a}.log", f"echo {b} >> {a}.txt", f"echo {b}"),
        (
            ShellCheck("content", file_holds(f"{a}.log", [*lines, b])),
            ShellCheck("nothing_else", folder_holds_only(".", [f"{a}.log"])),
        ),
        {f"{a}.log": as_text_file(lines)},
    )


def move(d: DraftChoices) -> TaskDraft:
    a, b = d.names[:2]
    return TaskDraft(
        f"Rename the file {a}.txt to {b}.txt.",
        f"mv {a}.txt {b}.txt",
        (f"cp {a}.txt {b}.txt", f"mv {b}.txt {a}.txt", f"mv {a}.txt {b}"),
        (
            ShellCheck("content", file_holds(f"{b}.txt", d.filler[: d.size])),
            ShellCheck("source_gone", folder_holds_only(".", [f"{b}.txt"])),
        ),
        {f"{a}.txt": as_text_file(d.filler[: d.size])},
    )


def copy(d: DraftChoices) -> TaskDraft:
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


def count(d: DraftChoices) -> TaskDraft:
    a, b, c = d.names[:3]
    words = d.filler[: d.size]
    hits = set(sorted(words)[: d.instruction_lines])
    return _derived(
        f"Count the lines with {b} in {a}.log and save the number in {c}.txt.",
        source=f"{a}.log",
        lines=[f"{b} {word}" if word in hits else word for word in words],
        target=f"{c}.txt",
        result=[str(len(hits))],
        commands=(f"grep -c {b} {a}.log > {c}.txt", f"grep {b} {a}.log > {c}.txt", f"grep -v {b} {a}.log > {c}.txt"),
    )


def _unsorted(d: DraftChoices, size: int) -> list[str]:
    """Return lines that are neither in order nor in reverse order."""
    low, middle, high, *others = sorted(d.filler[:size])
    return [middle, high, low, *others]


def sort(d: DraftChoices) -> TaskDraft:
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


def reverse_sort(d: DraftChoices) -> TaskDraft:
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


def unique(d: DraftChoices) -> TaskDraft:
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


def first_lines(d: DraftChoices) -> TaskDraft:
    a, b = d.names[:2]
    lines = d.filler[: d.size]
    return _derived(
        f"Save the first {d.instruction_lines} lines of {a}.log in {b}.txt.",
        source=f"{a}.log",
        lines=lines,
        target=f"{b}.txt",
        result=lines[: d.instruction_lines],
        commands=(
            f"head -n {d.instruction_lines} {a}.log > {b}.txt",
            f"tail -n {d.instruction_lines} {a}.log > {b}.txt",
            f"head -n {d.instruction_lines} {a}.txt > {b}.txt",
        ),
    )


def last_lines(d: DraftChoices) -> TaskDraft:
    a, b = d.names[:2]
    lines = d.filler[: d.size]
    return _derived(
        f"Save the last {d.instruction_lines} lines of {a}.log in {b}.txt.",
        source=f"{a}.log",
        lines=lines,
        target=f"{b}.txt",
        result=lines[-d.instruction_lines :],
        commands=(
            f"tail -n {d.instruction_lines} {a}.log > {b}.txt",
            f"head -n {d.instruction_lines} {a}.log > {b}.txt",
            f"tail -n {d.instruction_lines} {a}.txt > {b}.txt",
        ),
    )


def set_mode(d: DraftChoices) -> TaskDraft:
    a = d.names[0]
    lines = [f"echo {word}" for word in d.filler[: d.size]]
    return TaskDraft(
        f"Set the mode of {a}.sh to {d.mode}.",
        f"chmod {d.mode} {a}.sh",
        (f"chmod +r {a}.sh", f"chmod {d.mode} {a}.txt", f"chmod {a}.sh {d.mode}"),
        (
            ShellCheck("mode", f'[ "$(stat -c %a {a}.sh)" = {d.mode} ]'),
            ShellCheck("content_unchanged", file_holds(f"{a}.sh", lines)),
        ),
        {f"{a}.sh": as_text_file(lines)},
    )


def make_directories(d: DraftChoices) -> TaskDraft:
    a, b, c = d.names[:3]
    return TaskDraft(
        f"Make the directory {a}/{b}/{c}.",
        f"mkdir -p {a}/{b}/{c}",
        (f"mkdir {a}/{b}/{c}", f"mkdir -p {a}/{b}", f"mkdir -p {a}/{c}"),
        (
            ShellCheck("made", f"[ -d {a}/{b}/{c} ]"),
            ShellCheck("nothing_else", f"{folder_holds_only('.', [a])} && {folder_holds_only(a, [b])}"),
        ),
    )


def find_files(d: DraftChoices) -> TaskDraft:
    a, b = d.names[:2]
    folder, *names = d.filler[: 1 + d.size]
    others = [e for e in EXTENSIONS if e != d.extension]
    hits = 2 + d.column
    paths = [
        f"{a}/{f'{folder}/' if n % 2 else ''}{name}.{d.extension if n < hits else others[n % len(others)]}"
        for n, name in enumerate(names)
    ]
    return TaskDraft(
        f"List the files under {a} that end in .{d.extension} and save the list in {b}.out.",
        f"find {a} -name '*.{d.extension}' > {b}.out",
        (f"find {a} > {b}.out", f"find {a} -name '*.{d.extension}'", f"find {a} -name '{d.extension}' > {b}.out"),
        (
            ShellCheck("result", file_lists(f"{b}.out", paths[:hits])),
            ShellCheck("nothing_else", folder_holds_only(".", [a, f"{b}.out"])),
        ),
        dict.fromkeys(paths, ""),
    )


def sum_column(d: DraftChoices) -> TaskDraft:
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


def json_field(d: DraftChoices) -> TaskDraft:
    key, a, b = d.names[:3]
    value, *others = d.filler[: 2 * (d.size - 3) + 1]
    pairs = list(zip(others[::2], others[1::2], strict=True))
    pairs.insert(d.instruction_lines, (key, value))
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
    """Return the smallest archive of one small file; equal input gives equal bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content.encode()))
    return out.getvalue()[: 4 * tarfile.BLOCKSIZE]


def unpack_archive(d: DraftChoices) -> TaskDraft:
    a, inside = d.names[0], d.filler[0]
    lines = d.filler[1 : 1 + d.size]
    return TaskDraft(
        f"Unpack the archive {a}.tar.",
        f"tar -xf {a}.tar",
        (f"tar -tf {a}.tar", f"tar -cf {a}.tar", f"tar -xf {a}.txt"),
        (
            ShellCheck("content", file_holds(f"{inside}.md", lines)),
            ShellCheck("nothing_else", folder_holds_only(".", [f"{a}.tar", f"{inside}.md"])),
        ),
        {f"{a}.tar": _tar(f"{inside}.md", as_text_file(lines))},
    )


def make_symlink(d: DraftChoices) -> TaskDraft:
    a, b = d.names[:2]
    lines = d.filler[: d.size]
    return TaskDraft(
        f"Make a symbolic link {a} that points to {b}.txt.",
        f"ln -s {b}.txt {a}",
        (f"ln {b}.txt {a}", f"ln -s {a} {b}.txt", f"cp {b}.txt {a}"),
        (
            ShellCheck("points_there", f'[ "$(readlink {a})" = {b}.txt ]'),
            ShellCheck(
                "target_unchanged", f"{file_holds(f'{b}.txt', lines)} && {folder_holds_only('.', [a, f'{b}.txt'])}"
            ),
        ),
        {f"{b}.txt": as_text_file(lines)},
    )


def fix_script(d: DraftChoices) -> TaskDraft:
    a, b, c = d.names[:3]
    comments = [f"# {word}" for word in d.filler[: d.size - 1]]
    return TaskDraft(
        f'The script {a}.sh prints "{b}" but should print "{c}". Mend it.',
        f"sed -i s/{b}/{c}/ {a}.sh",
        (f"sed s/{b}/{c}/ {a}.sh", f"sed -i s/{c}/{b}/ {a}.sh", f"sed -i s/{b}/{c}/ {a}.txt"),
        (
            ShellCheck("mended", file_holds(f"{a}.sh", [*comments, f"echo {c}"])),
            ShellCheck("nothing_else", folder_holds_only(".", [f"{a}.sh"])),
        ),
        {f"{a}.sh": as_text_file([*comments, f"echo {b}"])},
    )


def append_first_lines(d: DraftChoices) -> TaskDraft:
    a, b = d.names[:2]
    lines = d.filler[: d.size]
    before = d.filler[d.size : 2 * d.size]
    return TaskDraft(
        f"Append the first {d.instruction_lines} lines of {a}.log to the file {b}.txt.",
        f"head -n {d.instruction_lines} {a}.log >> {b}.txt",
        (
            f"head -n {d.instruction_lines} {a}.log > {b}.txt",
            f"tail -n {d.instruction_lines} {a}.log >> {b}.txt",
            f"cat {a}.log >> {b}.txt",
        ),
        (
            ShellCheck("content", file_holds(f"{b}.txt", [*before, *lines[: d.instruction_lines]])),
            ShellCheck("source_unchanged", file_holds(f"{a}.log", lines)),
            ShellCheck("nothing_else", folder_holds_only(".", [f"{a}.log", f"{b}.txt"])),
        ),
        {f"{a}.log": as_text_file(lines), f"{b}.txt": as_text_file(before)},
    )


FAMILIES: dict[str, TaskFamily] = {
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
    "mode": set_mode,
    "directories": make_directories,
    "find": find_files,
    "total": sum_column,
    "json_field": json_field,
    "unpack": unpack_archive,
    "link": make_symlink,
    "fix": fix_script,
    "append_first_lines": append_first_lines,
}
"""Families by name, in the order in which training cycles through them."""

HELD_OUT_FAMILY = "append_first_lines"
"""Default of the family that only evaluation uses; it combines ``first_lines`` and ``append``."""
