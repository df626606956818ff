"""release.sh is run on trees that are made here; what it writes is read with tarfile."""

import base64
import gzip
import os
import shutil
import tarfile
from pathlib import Path

import nobody

SCRIPT = "/app/release.sh"
TREE = {
    "package.env": "NAME=skiff\nVERSION=2.10\n",
    "Bin/tool": "#!/bin/sh\n",
    "bin/b": "b\n",
    "bin/a.txt": "a\n",
    "bin-extra/c": "c\n",
    "data/ü.txt": "u\n",
    "data/with space/x y": "x\n",
    "out/product": "p\n",
    "lib/out/deep/product": "p\n",
    "lib/keep.tmpx": "k\n",
    "lib/t.tmp": "t\n",
    "notes/todo-1": "1\n",
    "notes/done": "1\n",
    "deep/notes/todo-1": "kept\n",
}
IGNORED = "out\n# a comment\n\n*.tmp\nnotes/todo*\n"
LEFT_OUT = ("out", "lib/out", "lib/t.tmp", "notes/todo-1", ".releaseignore")


def tree(order, ignore=IGNORED):
    made = nobody.folder()
    files = {**TREE, ".releaseignore": ignore} if ignore is not None else dict(TREE)
    for path in sorted(files, reverse=order):
        target = made / "t" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(files[path])
    (made / "t/Bin/tool").chmod(0o755)
    (made / "t/link").symlink_to("bin/a.txt")
    (made / "t/dangling").symlink_to("nowhere")
    for each in [made / "t", *(made / "t").rglob("*")]:
        os.chown(each, 65534, 65534, follow_symlinks=False)
    return made


def pack(made, src="t", cwd=None, env=None):
    out = made / "out.tgz"
    done = nobody.run("bash", SCRIPT, src, out.name if cwd is None else out, cwd=cwd or made, env=env)
    assert done.returncode == 0, done.stderr
    return base64.b64decode(nobody.run("base64", "-w0", out).stdout)


def entries(data):
    target = Path(nobody.folder()) / "x.tgz"
    target.write_bytes(data)
    with tarfile.open(target) as opened:
        return [(each, opened.extractfile(each).read() if each.isfile() else b"") for each in opened]


def names(data):
    return [each.name.rstrip("/") for each, _ in entries(data)]


def copied(source):
    made = nobody.folder()
    shutil.copytree(source, made / "t", symlinks=True)
    for each in [made / "t", *(made / "t").rglob("*")]:
        os.chown(each, 65534, 65534, follow_symlinks=False)
    return made


def test_equal_bytes_of_the_examples():
    a, b = pack(copied("/app/example-a")), pack(copied("/app/example-b"))
    assert len(a) > 100
    assert a == b


def test_entries_of_the_example():
    top = "lantern-0.9"
    inside = ["docs", "docs/manual.md", "package.env", "run", "src", "src/a b.txt", "src/deep", "src/deep/Z.txt"]
    assert names(pack(copied("/app/example-a"))) == [top, *(f"{top}/{each}" for each in [*inside, "src/run.sh"])]


def test_same_tree_made_otherwise():
    one, other = tree(order=False), tree(order=True)
    for number, each in enumerate((other / "t").rglob("*")):
        os.utime(each, (10**9 + number, 10**9 + number), follow_symlinks=False)
    (other / "t/bin/b").chmod(0o600)
    (other / "t/data").chmod(0o700)
    shutil.move(other / "t", other / "moved here")
    epoch = {"SOURCE_DATE_EPOCH": "1700000000"}
    first = pack(one, env=epoch)
    elsewhere = {**epoch, "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8"}
    assert pack(other, src=other / "moved here", cwd="/", env=elsewhere) == first
    assert len(entries(first)) > 10


def test_order_times_owners_and_modes():
    found = entries(pack(tree(order=True), env={"SOURCE_DATE_EPOCH": "1234567890"}))
    paths = [each.name.rstrip("/") for each, _ in found]
    assert paths[0] == "skiff-2.10"
    # byte order of whole paths, or component by component as tar itself sorts
    assert paths == sorted(paths, key=str.encode) or paths == sorted(paths, key=lambda path: path.encode().split(b"/"))
    for each, _ in found:
        assert each.mtime == 1234567890, each.name
        assert (each.uid, each.gid, each.uname, each.gname) == (0, 0, "root", "root"), each.name
        if not each.issym():
            executable = each.isdir() or each.name == "skiff-2.10/Bin/tool"
            assert each.mode & 0o7777 == (0o755 if executable else 0o644), each.name
    held = {each.name.removeprefix("skiff-2.10/"): data.decode() for each, data in found if each.isfile()}
    gone = (*LEFT_OUT, "out/product", "lib/out/deep/product")
    assert held == {path: text for path, text in TREE.items() if path not in gone}


def test_links_stay_links():
    links = {each.name: each.linkname for each, _ in entries(pack(tree(order=False))) if each.issym()}
    assert links == {"skiff-2.10/link": "bin/a.txt", "skiff-2.10/dangling": "nowhere"}


def test_ignored_folders_and_paths():
    packed = {name.removeprefix("skiff-2.10/") for name in names(pack(tree(order=False)))}
    assert not packed & set(LEFT_OUT)
    assert {"lib/keep.tmpx", "deep/notes/todo-1", "notes/done", "notes"} <= packed
    everything = {name.removeprefix("skiff-2.10/") for name in names(pack(tree(order=False, ignore=None)))}
    assert {"out/product", "lib/out/deep/product", "lib/t.tmp", "notes/todo-1"} <= everything


def test_gzip_header_and_default_time():
    data = pack(tree(order=False))
    assert data[:4] == b"\x1f\x8b\x08\x00", "the header has a name, or is none of gzip's"
    assert data[4:8] == b"\0\0\0\0"
    assert gzip.decompress(data)
    assert {each.mtime for each, _ in entries(data)} == {0}
