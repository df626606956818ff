"""The hook is called on messages that are made here."""

import nobody

HOOK = "/app/repo/.git/hooks/commit-msg"


def codes(message, **env):
    made = nobody.folder({"msg": message})
    done = nobody.run(HOOK, made / "msg", env=env)
    found = done.stderr.splitlines()
    assert done.returncode == int(bool(found)), done.stderr
    assert done.stdout == ""
    assert nobody.read(made / "msg") == message
    return found


def test_examples():
    assert codes(nobody.read("/app/good.txt")) == []
    assert codes(nobody.read("/app/bad.txt")) == ["form", "gap"]


def test_subjects():
    good = [
        "feat: a",
        "docs(a-1): 9 lives",
        "test!: x",
        "build(x)!: ünder Öl",
        "feat: (x)",
        "Merge branch 'X'",
        'Revert "Y."',
    ]
    for subject in good:
        assert codes(f"{subject}\n") == [], subject
    bad = ["feat a", "feat:a", "feat:  a", "Feat: a", "feat : a", "feat(): a", "feat(A): a", "feat(a b): a", "chore: a"]
    bad += [
        "feat: A",
        "feat: a.",
        "feat:",
        "feat: ",
        " feat: a",
        "feat!!: a",
        "feature: a",
        "Merged x",
        "feat(ä): a",
        "revert: X",
    ]
    for subject in bad:
        assert codes(subject) == ["form"], subject


def test_lengths_in_characters():
    assert codes("feat: " + "ä" * 54) == []
    assert codes("feat: " + "ä" * 54, LC_ALL="C", LANG="C") == []
    assert codes("feat: " + "a" * 55) == ["long"]
    assert codes("feat: " + "a" * 54 + "  \t\n") == []
    assert codes("Merge " + "a" * 99 + "\nno gap\n") == []


def test_what_counts():
    scissors = "# ------------------------ >8 ------------------------"
    assert codes(f"\n  \n# c\nfeat: a\n# in between\n\nbody\n{scissors}\n{'x y ' * 40}\nCloses #1\n") == []
    assert codes(f"fix: a\n\n{scissors}\nCloses #1\n") == ["issue"]
    for nothing in ("", "\n\n", "# only\n#comments\n", f"{scissors}\nfeat: a\n", "   \n#\n\t\n"):
        assert codes(nothing) == ["empty"], nothing
    assert codes("feat: a\n\n# " + "x " * 90 + "\n") == []
    assert codes("feat: a\n #no comment\n") == ["gap"]
    assert codes("feat: a\n# c\n\nb\n") == []


def test_bodies():
    words = "ö " * 40
    assert codes(f"feat: a\n\n{words}\n{words[:-1]}y\n") == []
    assert codes(f"feat: a\n\nfine\n{words}z\n") == ["body"]
    assert codes(f"feat: a\n\nhttps-{'x' * 100}\n    {words}z\n") == []
    assert codes(f"feat: a\n\n   {words}\n{words}z {words}\n") == ["body"]


def test_issues():
    for line in ("Closes #1", "Refs #120  "):
        assert codes(f"fix(x)!: a\n\nbody\n{line}\nmore\n") == [], line
    for line in (
        "closes #1",
        "Closes 1",
        "Closes #01",
        "Refs #0",
        "It Closes #1",
        "Closes #1.",
        "Closes #",
        "# Closes #1",
    ):
        assert codes(f"fix: a\n\n{line}\n") == ["issue"], line
    assert codes("fixes: a\n") == ["form"]
    assert codes("feat: a\n\nCloses #x\n") == []


def test_all_codes_in_order():
    words = "x " * 50
    assert codes(f"fix: {'A' * 70}.\nno gap\n{words}\n{words}\n") == ["form", "long", "gap", "body", "issue"]
