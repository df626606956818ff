"""The commit is read object by object; each must have the hash of its content."""

import hashlib
import zlib
from pathlib import Path

REPO = Path("/app/repo")
GIT = REPO / ".git"
PARENT = "83dc2f8d42ec4fcf06cb01043ca24265d5e5ed53"
MAIN = "625c1cea20c8f9bb0f910875d68f7aef4b2a4556"
OLD_OBJECTS = 23


def get(name):
    whole = zlib.decompress((GIT / "objects" / name[:2] / name[2:]).read_bytes())
    assert hashlib.sha1(whole).hexdigest() == name
    head, _, body = whole.partition(b"\0")
    kind, size = head.split(b" ")
    assert int(size) == len(body)
    return kind.decode(), body


def release():
    name = (GIT / "refs/heads/release").read_text().removesuffix("\n")
    assert name != PARENT, "release is where it was"
    assert len(name) == 40
    return name


def commit():
    kind, body = get(release())
    assert kind == "commit"
    head, _, message = body.decode().partition("\n\n")
    return head.split("\n"), message


def entries(name):
    kind, body = get(name)
    assert kind == "tree"
    found = []
    while body:
        head, _, rest = body.partition(b"\0")
        mode, _, entry = head.decode().partition(" ")
        found.append((mode, entry, rest[:20].hex()))
        body = rest[20:]
    return found


def trees():
    """Path → entries, of the new commit."""
    waiting, found = [("", commit()[0][0].removeprefix("tree "))], {}
    while waiting:
        path, name = waiting.pop()
        found[path] = entries(name)
        waiting += [(f"{path}{entry}/", below) for mode, entry, below in found[path] if mode == "40000"]
    return found


def files():
    every = ((f"{path}{entry}", mode, name) for path, rows in trees().items() for mode, entry, name in rows)
    return {path: (mode, get(name)) for path, mode, name in every if mode != "40000"}


def test_commit():
    head, message = commit()
    assert head[1:] == [
        f"parent {PARENT}",
        "author Mia Sand <mia@quay.example> 1700001000 +0100",
        "committer Build Bot <bot@quay.example> 1700002000 +0000",
    ]
    assert message == "Release 1.1\n"


def test_files_and_modes():
    assert files() == {
        "README": ("100644", ("blob", b"quay 1.0\n")),
        "docs-old": ("100644", ("blob", b"o\n")),
        "docs.md": ("100644", ("blob", b"about docs\n")),
        "docs/guide/intro.md": ("100644", ("blob", "# Quay — an introduction\n\nMoor here.\n".encode())),
        "docs/zz": ("100644", ("blob", b"z\n")),
        "link": ("120000", ("blob", b"README")),
        "run.sh": ("100755", ("blob", b"#!/bin/sh\necho quay\n")),
        "src-tools/x": ("100644", ("blob", b"x\n")),
        "src.txt": ("100644", ("blob", b"about src\n")),
        "src/main.c": ("100644", ("blob", b"int main;\n")),
        "src/util.c": ("100755", ("blob", b"int util;\n")),
    }


def test_trees_are_in_gits_order():
    found = trees()
    assert {"", "docs/", "docs/guide/", "src/", "src-tools/"} == set(found)
    for rows in found.values():
        keys = [entry.encode() + (b"/" if mode == "40000" else b"") for mode, entry, _ in rows]
        assert keys == sorted(set(keys))


def test_reflog():
    lines = (GIT / "logs/refs/heads/release").read_text().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("0000000000000000000000000000000000000000 7009ba9eb324a66be5a1a7925c203bd1bfb9c52a ")
    assert lines[2] == f"{PARENT} {release()} Build Bot <bot@quay.example> 1700002000 +0000\tcommit: Release 1.1"


def test_nothing_else_changed():
    release()
    assert (GIT / "HEAD").read_text() == "ref: refs/heads/main\n"
    assert (GIT / "refs/heads/main").read_text() == f"{MAIN}\n"
    assert (GIT / "logs/HEAD").read_text().count("\n") == 1
    top = sorted(each.relative_to(GIT).as_posix() for each in GIT.rglob("*") if not each.is_dir())
    assert [each for each in top if not each.startswith("objects/")] == [
        *("HEAD", "config", "logs/HEAD", "logs/refs/heads/release", "refs/heads/main", "refs/heads/release"),
    ]
    assert (REPO / "README").read_text() == "quay, main\n"
    assert (REPO / "old.txt").read_text() == "old\n"
    assert sorted(each.name for each in REPO.iterdir()) == [
        *(".git", "README", "docs", "docs-old", "docs.md", "lib", "link", "old.txt", "run.sh", "src", "src-tools"),
        "src.txt",
    ]
    assert not (REPO / "docs/guide").exists()


def test_no_other_objects():
    commit()
    names = [f"{each.parent.name}{each.name}" for each in (GIT / "objects").glob("??/*")]
    for name in names:
        get(name)
    # one blob, four trees (the top, docs, docs/guide, src), the commit
    assert len(names) == OLD_OBJECTS + 6
