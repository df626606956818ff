"""If these fail, a repository gets other files than a patch says, or a patch that does not apply passes for one that
does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.tasks.unified_diff import PatchError, apply_patch, changed_modes, touched_paths
from tools.swe_bugs import make_patch

CHANGE = """\
diff --git a/a.txt b/a.txt
index 1..2 100644
--- a/a.txt
+++ b/a.txt
@@ -1,3 +1,3 @@ def f():
 one
-two
+2
 three
@@ -5 +5,2 @@
-five
\\ No newline at end of file
+five
+six
"""
BEFORE = "one\ntwo\nthree\nfour\nfive"
TEXTS = st.dictionaries(
    st.sampled_from(["a.py", "b/c.py", "d e.txt"]),
    st.lists(st.sampled_from(["x\n", "y\n", "\n", "\x0c\n"])).map("".join),
)


def test_a_patch_changes_lines_and_the_end_of_a_file():
    assert apply_patch(CHANGE, {"a.txt": BEFORE, "b": "x"}) == {"a.txt": "one\n2\nthree\nfour\nfive\nsix\n", "b": "x"}
    assert touched_paths(CHANGE) == {"a.txt"}


def test_files_come_and_go():
    made = "--- /dev/null\n+++ b/n/new\n@@ -0,0 +1 @@\n+x\n"
    gone = "--- a/n/new\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    assert apply_patch(made, {}) == {"n/new": "x\n"}
    assert apply_patch(gone, {"n/new": "x\n"}) == {}
    assert touched_paths(made) == touched_paths(gone) == {"n/new"}


MADE = {"pkg/__init__.py": "", "bé.py": "x\n", 'q"u\\ote\t.py': "y\n", "a b/c d.txt": "", "run.sh": "#!/bin/sh\n"}
EMPTY = "diff --git a/x b/x\n{} file mode 100644\nindex 0000000..e69de29\n"


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
def test_what_git_writes_of_any_name_mode_and_empty_file_is_read(tmp_path: Path):
    def git(*words: str) -> str:
        given = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost", *words]
        return subprocess.run(given, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "0")
    for path, text in MADE.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "run.sh").chmod(0o755)
    git("add", "-A")
    made = git("diff", "--cached")
    assert apply_patch(made, {}) == MADE
    assert touched_paths(made) == MADE.keys()
    assert changed_modes(made) == {path: path == "run.sh" for path in MADE}
    git("commit", "-q", "-m", "1")
    (tmp_path / "run.sh").chmod(0o644)
    (tmp_path / "pkg/__init__.py").unlink()
    changed = git("diff")
    assert touched_paths(changed) == {"run.sh", "pkg/__init__.py"}
    assert changed_modes(changed) == {"run.sh": False}
    assert apply_patch(changed, MADE) == {path: text for path, text in MADE.items() if path != "pkg/__init__.py"}


def test_only_headers_name_files():
    patch = "--- a/x.sql\n+++ b/x.sql\n@@ -1,2 +1,2 @@\n--- a/tests/test_x.py\n-b\n+++ b/tests/test_y.py\n+b\n"
    assert touched_paths(patch) == {"x.sql"}
    assert apply_patch(patch, {"x.sql": "-- a/tests/test_x.py\nb\n"}) == {"x.sql": "++ b/tests/test_y.py\nb\n"}


def test_what_is_not_applied_is_touched():
    renamed = 'diff --git a/x "b/\\303\\251"\nsimilarity index 100%\nrename from x\nrename to "\\303\\251"\n'
    assert touched_paths(renamed) == {"x", "é"}
    assert touched_paths("diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 0\n") == {"x"}


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        (CHANGE.replace("-two", "-zwei"), "has other lines at line 1"),
        (CHANGE.replace("a.txt", "z.txt"), "there is no z.txt"),
        (CHANGE.replace("--- a/a.txt", "--- /dev/null"), "there is a a.txt already"),
        (CHANGE[: CHANGE.index("+five")], "ends within a hunk"),
        (CHANGE.replace(" three", "three"), "begins with none of blank"),
        (CHANGE.replace("--- a/a.txt", "--- a.txt"), "in another way than git: a.txt"),
        ("Binary files a/x and b/x differ\n", "not plain text"),
        ("diff --git a/x b/y\nrename from x\nrename to y\n", "not plain text"),
        ("--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n", "not all of its lines"),
        (EMPTY.format("new").replace("100644", "120000"), "not plain text: new file mode 120000"),
        (EMPTY.format("deleted"), "there is no x"),
        (EMPTY.format("deleted").replace("x", "a.txt"), "not all of its lines"),
        ("diff --git a/a.txt b/a.txt\n", "has no change of a.txt in it"),
        ('--- "a/\\351"\n+++ "b/\\351"\n', "not in UTF-8"),
        ("", "has no change"),
        ("It is fixed.\n", "has no change"),
    ],
)
def test_what_does_not_apply_is_refused(patch: str, says: str):
    with pytest.raises(PatchError, match=says):
        apply_patch(patch, {"a.txt": BEFORE})


@given(TEXTS, TEXTS)
def test_a_patch_leads_from_one_state_to_another(before: dict[str, str], after: dict[str, str]):
    after = before | after
    if before != after:
        assert apply_patch(make_patch(before, after), before) == after


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
def test_git_applies_it_alike(tmp_path: Path):
    (tmp_path / "a.txt").write_text(BEFORE)
    subprocess.run(["git", "apply", "-"], input=CHANGE.encode(), cwd=tmp_path, check=True)
    assert (tmp_path / "a.txt").read_text() == apply_patch(CHANGE, {"a.txt": BEFORE})["a.txt"]
