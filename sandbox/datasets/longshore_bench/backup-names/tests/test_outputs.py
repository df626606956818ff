"""backup.sh is run on folders that are made here."""

import os

import nobody

ODD = [
    *("plain.dat", "two words.dat", " lead.dat", "new\nline.dat", "star*[a].dat", "back\\slash\\n.dat", "-rf.dat"),
    *("  /in  .dat", "deep er/-x/\ttab.dat"),
]


def backup(made, source, target):
    return nobody.run("bash", "/app/backup.sh", source, target, cwd=made)


def copies(folder):
    listed = nobody.run("find", folder, "-type", "f", "-printf", "%P\\0").stdout.split("\0")[:-1]
    return {path: nobody.read(folder / path) for path in listed}


def test_odd_names():
    made = nobody.folder({f"from here/{name}": f"content of {name}\n" for name in ODD})
    done = backup(made, made / "from here", made / "to there")
    assert copies(made / "to there") == {name: f"content of {name}\n" for name in ODD}
    assert (done.returncode, done.stdout) == (0, f"copied {len(ODD)}\n"), done.stderr


def test_which_files():
    made = nobody.folder({"s/a.DAT": "1", "s/b.dat.txt": "2", "s/dat": "3", "s/x.dat/inner.Dat": "4", "s/.dat": "5"})
    (made / "s/link.dat").symlink_to("a.DAT")
    (made / "s/folder").symlink_to(made / "s/x.dat")
    done = backup(made, made / "s", made / "t")
    assert copies(made / "t") == {"a.DAT": "1", "x.dat/inner.Dat": "4", ".dat": "5"}
    assert not (made / "t/link.dat").is_symlink()
    assert (done.returncode, done.stdout) == (0, "copied 3\n"), done.stderr


def test_count_and_unchanged_files():
    made = nobody.folder({"s/a.dat": "a", "s/b.dat": "b", "s/c.dat": "c", "t/b.dat": "b", "t/c.dat": "old"})
    os.utime(made / "s/a.dat", (10**9, 10**9))
    os.utime(made / "t/b.dat", (5, 5))
    assert backup(made, made / "s", made / "t").stdout == "copied 2\n"
    assert copies(made / "t") == {"a.dat": "a", "b.dat": "b", "c.dat": "c"}
    assert (made / "t/a.dat").stat().st_mtime == 10**9
    assert (made / "t/b.dat").stat().st_mtime == 5
    assert backup(made, made / "s", made / "t").stdout == "copied 0\n"


def test_relative_and_dashed_folders():
    made = nobody.folder({"-n/x.dat": "x", "sub/-n/y.dat": "y"})
    done = backup(made, "-n", "out/deep")
    assert (done.returncode, done.stdout) == (0, "copied 1\n"), done.stderr
    assert copies(made / "out/deep") == {"x.dat": "x"}
    assert backup(made / "sub", "./-n", "../out").stdout == "copied 1\n"
    assert copies(made / "out") == {"deep/x.dat": "x", "y.dat": "y"}
    assert sorted(each.name for each in (made / "-n").iterdir()) == ["x.dat"]


def test_errors():
    made = nobody.folder({"s/a.dat": "a", "s/no.dat": "n", "s/z.dat": "z", "file": ""})
    for source in (made / "missing", made / "file"):
        done = backup(made, source, made / "never")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr
        assert not (made / "never").exists()
    os.chown(made / "s/no.dat", 0, 0)
    (made / "s/no.dat").chmod(0o600)
    done = backup(made, made / "s", made / "t")
    assert (done.returncode, done.stdout) == (1, "copied 2\n")
    assert {path: text for path, text in copies(made / "t").items() if text} == {"a.dat": "a", "z.dat": "z"}
