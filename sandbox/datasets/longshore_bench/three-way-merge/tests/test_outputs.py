"""merge.sh is run on folders that are made here."""

import nobody


def merged(base, ours, theirs, executable=()):
    sides = {"base dir": base, "ours": ours, "theirs": theirs}
    made = nobody.folder({f"{side}/{path}": text for side, files in sides.items() for path, text in files.items()})
    for side in sides:
        if not (made / side).exists():
            (made / side).mkdir()
    for path in executable:
        (made / path).chmod(0o755)
    done = nobody.run("bash", "/app/merge.sh", made / "base dir", "ours", made / "theirs", "new/out", cwd=made)
    return made, done


def out(made):
    listed = nobody.run("find", made / "new/out", "-mindepth", "1", "-printf", "%y %P\\n").stdout.splitlines()
    files = sorted(each[2:] for each in listed if each[0] == "f")
    folders = {each[2:] for each in listed if each[0] == "d"}
    assert all(any(path.startswith(f"{folder}/") for path in files) for folder in folders), "an empty folder was made"
    return {path: nobody.read(made / "new/out" / path) for path in files}


def result(base, ours, theirs):
    made, done = merged(base, ours, theirs)
    lines = done.stdout.splitlines()
    assert done.returncode == int(bool(lines)), done.stderr
    return out(made), lines


def test_example():
    done = nobody.run(
        "bash", "/app/merge.sh", *(f"/app/example/{side}" for side in ("base", "ours", "theirs")), nobody.folder() / "o"
    )
    assert (done.returncode, done.stdout) == (1, "content clash\n")
    numbers = ["1\n2\n3\n4\n5\n", "1\ntwo\n3\n4\n5\n", "1\n2\n3\n4\nfive\n"]
    assert result(*({"list": each} for each in numbers)) == ({"list": "1\ntwo\n3\n4\nfive\n"}, [])


def test_one_side_changed():
    base = {"same": "s", "o": "1", "t": "1", "gone o": "g", "gone t": "g", "gone both": "g", "dir/x": "x"}
    ours = {"same": "s", "o": "2", "t": "1", "gone t": "g", "dir/x": "x", "both new": "n", "new o/a": "a"}
    theirs = {"same": "s", "o": "1", "t": "2\n", "gone o": "g", "both new": "n", "deep er/new t": "t\n"}
    theirs_files = {**theirs, "dir/y": "y"}
    found, conflicts = result(base, ours, theirs_files)
    assert conflicts == []
    assert found == {
        "same": "s",
        "o": "2",
        "t": "2\n",
        "both new": "n",
        "new o/a": "a",
        "deep er/new t": "t\n",
        "dir/y": "y",
    }


def test_lines_of_both():
    text = [f"{number}\n" for number in range(30)]

    def changed(**lines):
        return "".join(lines.get(f"l{number}", line) for number, line in enumerate(text))

    ours = changed(l1="one\n", l20="", l29="end")
    theirs = changed(l5="five\nfive b\n", l10="")
    both = changed(l1="one\n", l5="five\nfive b\n", l10="", l20="", l29="end")
    found, conflicts = result({"a b": "".join(text)}, {"a b": ours}, {"a b": theirs})
    assert (found, conflicts) == ({"a b": both}, [])


def test_conflicts():
    base = {"text": "a\nb\nc\n", "bin": "x\0y\n", "rm o": "1\n", "rm t": "1\n", "Z/bin": "plain\n", "fine": "f\n"}
    ours = {"text": "a\nO\nc\n", "bin": "x\0o\n", "rm t": "2\n", "new": "no\n", "Z/bin": "ours\n", "fine": "f\n"}
    theirs = {"text": "a\nT\nc\n", "bin": "x\0t\n", "rm o": "2\n", "new": "nt\n", "Z/bin": "thei\0rs\n", "fine": "g\n"}
    found, conflicts = result(base, ours, theirs)
    assert conflicts == ["binary Z/bin", "binary bin", "added new", "removed rm o", "removed rm t", "content text"]
    assert found == {
        "text": "a\n<<<<<<< ours\nO\n||||||| base\nb\n=======\nT\n>>>>>>> theirs\nc\n",
        "bin": "x\0o\n",
        "rm o": "2\n",
        "rm t": "2\n",
        "new": "no\n",
        "new.theirs": "nt\n",
        "Z/bin": "ours\n",
        "fine": "g\n",
    }


def test_modes():
    both = {"o": "1", "t": "1", "off": "1", "same": "1"}
    base = both | {"m": "1\n2\n3\n4\n5\n"}
    ours = both | {"m": "0\n2\n3\n4\n5\n", "new": "1", "add": "1"}
    theirs = both | {"m": "1\n2\n3\n4\n6\n", "add": "2", "late": "1"}
    executable = [
        "ours/o",
        "theirs/t",
        "base dir/off",
        "ours/off",
        *(f"{side}/same" for side in ("base dir", "ours", "theirs")),
    ]
    made, done = merged(base, ours, theirs, [*executable, "theirs/m", "ours/new", "ours/add", "theirs/late"])
    assert done.stdout == "added add\n"
    assert out(made)["m"] == "0\n2\n3\n4\n6\n"
    on = {"o", "t", "same", "m", "new", "add", "late"}
    for path in out(made):
        assert (made / "new/out" / path).stat().st_mode & 0o7777 == (0o755 if path in on else 0o644), path


def test_out_is_there():
    made, done = merged({"a": "1"}, {"a": "2"}, {"a": "1"})
    assert (done.returncode, out(made)) == (0, {"a": "2"})
    again = nobody.run("bash", "/app/merge.sh", "base dir", "theirs", "theirs", "new/out", cwd=made)
    assert (again.returncode, again.stdout) == (2, "")
    assert out(made) == {"a": "2"}
