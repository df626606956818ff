"""notes.sh is run on changelogs that are made here."""

from pathlib import Path

import nobody


def notes(text, *version):
    made = nobody.folder({"C H.md": text})
    done = nobody.run("bash", "/app/notes.sh", made / "C H.md", *version)
    return done.stdout if done.returncode == 0 else done.returncode


def test_example():
    text = Path("/app/CHANGELOG.md").read_text()
    newest = "### Changed\n- Everything. See [the guide].\n\n```\n## 1.0.0\nnot a heading\n```\n"
    assert notes(text) == newest
    assert notes(text, "2.0.0") == notes(text, "v2.0.0") == newest
    assert notes(text, "1.5+build.1") == "- Small.\n"
    assert notes(text, "1.0.0") == "- First.\n"
    assert notes(text, "Unreleased") == "- to come\n"


def test_versions_are_literal():
    text = (
        "## 1x2\na\n## [1.2.0]\nb\n## v1.2 - x\nc\n## 1.2\nd\n## [*]\ne\n## 1.2-rc.1\nf\n## vNext\ng\n## [a/b & c]\nh\n"
    )
    cases = {"1.2": "c\n", "v1.2": "c\n", "v1.2.0": "b\n", "*": "e\n", "1.2-rc.1": "f\n", "vNext": "g\n"}
    cases["a/b & c"] = "h\n"
    assert {version: notes(text, version) for version in cases} == cases


def test_headings():
    text = (
        "## not a version here\nx\n## UNRELEASED\nu\n##2.0\nstill u\n## 1.1   -   today - or not  \n\n### Sub\n#### Deep\n"
        "  ## indented\n## [1.0]  \nold\n# End\nafter\n## 0.9\nlast"
    )
    assert notes(text) == "### Sub\n#### Deep\n  ## indented\n"
    assert notes(text, "unreleased") in (1, "u\n##2.0\nstill u\n")
    assert notes(text, "UNRELEASED") == "u\n##2.0\nstill u\n"
    assert notes(text, "1.0") == "old\n"
    assert notes(text, "0.9") == "last\n"


def test_code_blocks():
    text = (
        "````md\n## 9.9\n```\n## 9.8\n````\n## 1.0\n   ```sh\n## 0.5\n``` x\n# no\n   ````  \n## 0.4\n```\n[a]: b\n## 0.3\n"
        "``\n## 0.2\n"
    )
    assert notes(text) == "   ```sh\n## 0.5\n``` x\n# no\n   ````\n".replace("````\n", "````  \n")
    assert notes(text, "0.4") == "```\n[a]: b\n## 0.3\n``\n## 0.2\n"
    assert notes(text, "9.9") == notes(text, "0.5") == notes(text, "0.3") == 1


def test_link_definitions_and_empty_lines():
    text = "## 1.0\n \n[x]: a\n\t\n  text [y]: no\n\n[y z]: <b>\n\nmore\n    [i]: code\n[x] [y]\n\n  \n[last]: c\n"
    assert notes(text) == "  text [y]: no\n\n\nmore\n    [i]: code\n[x] [y]\n"
    assert notes("## 1.0\n\n[x]: a\n\n## 0.9\n") == ""


def test_not_found():
    for text, *version in [
        ("",),
        ("# C\n## Unreleased\nx\n",),
        ("## 1.0\n", "1"),
        ("## 1.0\n", "1.0.0"),
        ("x\n### 1.0\n", "1.0"),
    ]:
        assert notes(text, *version) == 1, text
    assert notes("## 1.0\nfine\n") == "fine\n"
