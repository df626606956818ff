"""glog.py is run on repositories that are made here."""

import hashlib
import shutil
import zlib
from pathlib import Path

import nobody


class Repo:
    def __init__(self):
        self.folder = nobody.folder({"r/.git/HEAD": "ref: refs/heads/main\n"}) / "r"
        self.git = self.folder / ".git"

    def put(self, kind, body):
        whole = f"{kind} {len(body)}".encode() + b"\0" + body
        name = hashlib.sha1(whole).hexdigest()
        self.write(f"objects/{name[:2]}/{name[2:]}", zlib.compress(whole))
        return name

    def write(self, path, data):
        target = self.git / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data if isinstance(data, bytes) else data.encode())

    def commit(self, parents=(), when=1709230000, message=b"m\n", author=None, committer=None, more=b""):
        who = b"A U Thor <a@b.c> %d +0000" % when
        head = [b"tree " + self.put("tree", b"").encode(), *(b"parent " + each.encode() for each in parents)]
        head += [b"author " + (author or who), b"committer " + (committer or who)]
        return self.put("commit", b"\n".join(head) + b"\n" + more + b"\n" + message)

    def tag(self, name, to, kind="commit"):
        return self.put("tag", f"object {to}\ntype {kind}\ntag {name}\ntagger A <a> 1 +0000\n\n{name}\n".encode())

    def ref(self, name, to):
        self.write(f"refs/{name}", f"{to}\n")

    def log(self, *revision):
        return nobody.run("python3", "/app/glog.py", self.folder, *revision, env={"TZ": "Asia/Tokyo"})

    def lines(self, *revision):
        done = self.log(*revision)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def hashes(self, *revision):
        return [line.split()[0] for line in self.lines(*revision)]


def short(*names):
    return [name[:8] for name in names]


def test_example():
    made = nobody.folder()
    shutil.copytree("/app/example", made / "r")
    done = nobody.run("python3", "/app/glog.py", made / "r")
    lines = done.stdout.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        "2024-02-29 23:56 +0545 Ada Holm: Merge (HEAD -> main)",
        "2024-02-29 23:55 +0545 Ada Holm: Right, in two lines (right)",
        "2024-02-29 23:53 +0545 Ada Holm: Left (tag: v1)",
        "2024-02-29 23:51 +0545 Ada Holm: Begin",
    ]
    assert done.stdout == Path("/app/expected.txt").read_text()


def test_order():
    repo = Repo()
    root = repo.commit(when=5000)
    # A clock that went wrong: parents are younger than their children.
    left = [root]
    for when in (4000, 100, 3000):
        left.append(repo.commit([left[-1]], when, b"left\n"))
    right = [root]
    for when in (200, 3500, 90):
        right.append(repo.commit([right[-1]], when, b"right\n"))
    top = repo.commit([left[-1], right[-1]], 1)
    repo.ref("heads/main", top)
    assert repo.hashes() == short(top, left[3], left[2], left[1], right[3], right[2], right[1], root)
    twins = sorted(repo.commit([root], 7000, b"twin %d\n" % number) for number in range(9))
    many = repo.commit([*reversed(twins), root, twins[0]], 7000, b"octopus\n")
    repo.ref("heads/many", many)
    assert repo.hashes("many") == short(many, *twins, root)


def test_refs():
    repo = Repo()
    a = repo.commit(message=b"a\n")
    b = repo.commit([a], message=b"b\n")
    for name, to in [("heads/main", b), ("heads/Zoo", b), ("heads/topic/x", b), ("tags/light", b), ("tags/b", a)]:
        repo.ref(name, to)
    repo.ref("tags/deep", repo.tag("deep", repo.tag("inner", b), "tag"))
    repo.ref("tags/of-tree", repo.tag("of-tree", repo.put("tree", b""), "tree"))
    repo.ref("remotes/origin/main", a)
    repo.write("packed-refs", f"# pack-refs\n{a} refs/heads/main\n{a} refs/heads/packed\n{b} refs/tags/b\n^{a}\n")
    stem = "2024-02-29 18:06 +0000 A U Thor: "
    assert repo.lines() == [
        f"{b[:8]} {stem}b (HEAD -> main, Zoo, topic/x, tag: deep, tag: light)",
        f"{a[:8]} {stem}a (packed, tag: b)",
    ]
    repo.write("HEAD", f"{a}\n")
    assert repo.lines() == [f"{a[:8]} {stem}a (HEAD, packed, tag: b)"]
    assert repo.lines("main")[0].endswith(" b (Zoo, main, topic/x, tag: deep, tag: light)")


def test_dates_names_and_subjects():
    repo = Repo()
    a = repo.commit(author=b"Zo\xc3\xab B. <z@x> 951868799 -0130", message=b"\n\n  first\nsecond \n \nthird\n")
    b = repo.commit([a], author=b"J\xf6rg <j> 0 +1400", more=b"encoding ISO-8859-1\n", message=b"\xdcber\n\nx\n")
    gpg = b"gpgsig -----BEGIN\n author X <x> 1 +0000\n committer\n -----END\n"
    c = repo.commit([b], author=b"<only@mail> 86399 +0000", committer=b"C <c> 2000000000 +0000", more=gpg, message=b"")
    repo.ref("heads/main", c)
    lines = [line.split(" ", 1)[1] for line in repo.lines()]
    assert lines[1] == "1970-01-01 14:00 +1400 Jörg: Über"
    assert lines[2] == "2000-02-29 22:29 -0130 Zoë B.:   first second "
    assert lines[0].startswith("1970-01-01 23:59 +0000 ")
    assert lines[0].endswith(" (HEAD -> main)")


def test_revisions():
    repo = Repo()
    a = repo.commit(message=b"a\n")
    b = repo.commit([a], message=b"b\n")
    c = repo.commit([a], message=b"c\n")
    d = repo.commit([b, c], message=b"d\n")
    e = repo.commit([d], message=b"e\n")
    repo.ref("heads/main", e)
    repo.ref("heads/twice", a)
    repo.ref("tags/twice", c)
    repo.ref("tags/note", repo.tag("note", d))
    repo.ref("heads/abcd", b)
    for revision, top in {
        "HEAD^": d,
        "HEAD^0": e,
        "main~2": b,
        "main^^2": c,
        "main~1^2~1": a,
        "note": d,
        "note^2": c,
        "twice": c,
        "refs/heads/twice": a,
        "refs/tags/note~": b,
        d[:7]: d,
        f"{e[:12]}~3": a,
        "abcd": b,
        "main~0": e,
        e: e,
        repo.tag("note", d)[:9]: d,
    }.items():
        assert repo.hashes(revision)[0] == top[:8], revision


def test_nowhere():
    repo = Repo()
    a = repo.commit()
    repo.ref("heads/main", a)
    assert repo.hashes("main") == short(a)
    seen, prefix = {}, None
    number = 0
    while prefix is None:
        name = repo.commit(message=b"%d\n" % number)
        prefix = name[:4] if name[:4] in seen else None
        seen[name[:4]] = name
        number += 1
    tree = repo.put("tree", b"")
    for revision in ["HEAD^", "main^2", "main~1", "nope", a[:3], prefix, "heads", tree[:8], "0000"]:
        done = repo.log(revision)
        assert (done.returncode, done.stdout) == (3, ""), revision
        assert done.stderr
    empty = Repo()
    empty.write("objects/pack/x", b"")
    assert empty.log().returncode == 3


def test_damage():
    repo = Repo()
    a = repo.commit(message=b"a\n")
    b = repo.commit([a], message=b"b\n")
    repo.ref("heads/main", b)
    assert repo.hashes() == short(b, a)
    other = zlib.compress(b"commit 3\0abc")
    path = f"objects/{a[:2]}/{a[2:]}"
    for data in (other, b"no zlib", b""):
        repo.write(path, data)
        assert repo.log().returncode == 4
    (repo.git / path).unlink()
    assert repo.log().returncode == 4
