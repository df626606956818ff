import pytest

from pagetext.patterns import match_part, match_path, read_patterns, select


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("*", ""), ("*", "abc"), ("a*c", "ac"), ("a*c", "abbc"), ("*.py", "x.py"), ("?x", "ax"), ("", "")],
)
def test_a_part_matches(pattern, text):
    assert match_part(pattern, text)


@pytest.mark.parametrize(("pattern", "text"), [("a", ""), ("?", ""), ("a*c", "ab"), ("a", "ab"), ("", "a"), ("?", "ab")])
def test_a_part_does_not_match(pattern, text):
    assert not match_part(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("a/*", "a/b"), ("**", "a/b/c"), ("**/c", "c"), ("**/c", "a/b/c"), ("a/**", "a"), ("a/**/d", "a/d"), ("**/b/**", "a/b")],
)
def test_a_path_matches(pattern, path):
    assert match_path(pattern, path)


@pytest.mark.parametrize(("pattern", "path"), [("a/*", "a"), ("a/*", "a/b/c"), ("*", "a/b"), ("**/c", "a/cc"), ("a/**/d", "a")])
def test_a_path_does_not_match(pattern, path):
    assert not match_path(pattern, path)


def test_the_last_pattern_that_matches_counts():
    paths = ["a.py", "b.py", "docs/c.py", "docs/d.md"]
    assert select(paths, ["**/*.py", "!docs/**"]) == ["a.py", "b.py"]
    assert select(paths, ["**/*.py", "!docs/**", "docs/c.py"]) == ["a.py", "b.py", "docs/c.py"]


def test_all_are_in_where_patterns_only_leave_out():
    assert select(["a", "b"], ["!b"]) == ["a"]
    assert select(["a", "b"], []) == ["a", "b"]
    assert select(["a", "b"], ["c"]) == []


def test_patterns_are_read():
    assert read_patterns(["# all", "", "*.py  # code", " !docs/** "]) == ["*.py", "!docs/**"]


@pytest.mark.parametrize("line", ["!", "a//b", "/a", "a/"])
def test_what_is_no_pattern_is_named(line):
    with pytest.raises(ValueError, match="line 2"):
        read_patterns(["ok", line])
