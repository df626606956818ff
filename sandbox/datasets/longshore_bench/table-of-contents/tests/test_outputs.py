"""toc.pl is run on files that are made here."""

import os
from pathlib import Path

import nobody

HEAD = "<!-- toc -->\n<!-- /toc -->\n"


def toc(text):
    made = nobody.folder({"a b.md": text})
    done = nobody.run("perl", "/app/toc.pl", made / "a b.md", env={"LC_ALL": "C"})
    assert done.returncode == 0, done.stderr
    return nobody.read(made / "a b.md")


def table(body, before=""):
    """Return the lines of the table; nothing else of the file may change."""
    out = toc(before + HEAD + body)
    assert out.startswith(before + "<!-- toc -->\n\n")
    assert out.endswith("<!-- /toc -->\n" + body)
    inside = out[len(before) + len("<!-- toc -->\n") : len(out) - len("<!-- /toc -->\n" + body)]
    assert inside == "\n" or (inside.startswith("\n") and inside.endswith("\n\n"))
    return inside.strip("\n").split("\n") if inside != "\n" else []


def test_example():
    text = Path("/app/README.md").read_text()
    start, _, rest = text.partition("<!-- toc -->\n")
    rest = rest[rest.index("<!-- /toc -->") :]
    assert toc(f"{start}<!-- toc -->\nold\n{rest}") == (
        f"{start}<!-- toc -->\n\n- [Getting started](#getting-started)\n  - [Install it!](#install-it)\n"
        f"- [Größe & Gewicht](#größe--gewicht)\n- [Getting started](#getting-started-1)\n\n{rest}"
    )


def test_headings():
    body = (
        "# One\n#### Four\n  ###   Three ##  \n    ## code\n##\tTab\n##No\n####### Seven\n## \n## #\n## C#\n## x # y ##\n"
        "###### Six"
    )
    assert table(body) == [
        *("    - [Four](#four)", "  - [Three](#three)", "- [Tab](#tab)", "- [C#](#c)", "- [x # y](#x--y)"),
        "        - [Six](#six)",
    ]
    assert table("### a\n##### b\n#### c\n", before="## above\n") == ["- [a](#a)", "    - [b](#b)", "  - [c](#c)"]
    assert table("# only\ntext\n") == []


def test_texts_and_anchors():
    body = (
        "## A [link *x*](b(c) and ![img](d)`co_de` **bold** __b__\n## ÄÖ É ßtraße 日本 x̂ ½²\n## 1.2.3 — a/b_c--d\n"
        "## array[0] \\n [x] y\n## *it* & <b>\n## Tab\there\n"
    )
    assert table(body) == [
        "- [A link *x* and co_de bold b](#a-link-x-and-co_de-bold-b)",
        "- [ÄÖ É ßtraße 日本 x̂ ½²](#äö-é-ßtraße-日本-x̂-)",
        "- [1.2.3 — a/b_c--d](#123--ab_c--d)",
        "- [array\\[0\\] \\\\n \\[x\\] y](#array0-n-x-y)",
        "- [*it* & <b>](#it--b)",
        "- [Tab\there](#tab-here)",
    ]


def test_equal_anchors():
    body = "## same\n### Same!\n# same\n## same\n## same 1\n"
    assert table(body, before="## same\n") == [
        *("- [same](#same-1)", "  - [Same!](#same-2)", "- [same](#same-4)", "- [same 1](#same-1)"),
    ]


def test_code_blocks():
    body = (
        "```\n## a\n~~~\n## b\n````  \n## yes\n   ~~~~ x\n## c\n~~~\n````\n## d\n~~~~\n## also\n``\n## fine\n    ```\n## too\n"
        "```\n## e\n"
    )
    assert table(body) == ["- [yes](#yes)", "- [also](#also)", "- [fine](#fine)", "- [too](#too)"]
    text = (
        "```\n<!-- toc -->\n<!-- /toc -->\n```\n<!-- /toc -->\n<!-- toc -->  \nx\n```\n<!-- /toc -->\n```\n<!-- /toc -->\t\n"
        "## a\n<!-- toc -->\n<!-- /toc -->\n"
    )
    assert toc(text) == text.replace("x\n```\n<!-- /toc -->\n```\n", "\n- [a](#a)\n\n")


def test_written_only_when_it_changes():
    made = nobody.folder({"x.md": HEAD + "## a\n"})
    path = made / "x.md"
    path.chmod(0o640)
    assert nobody.run("perl", "/app/toc.pl", path).returncode == 0
    assert nobody.read(path) == "<!-- toc -->\n\n- [a](#a)\n\n<!-- /toc -->\n## a\n"
    assert path.stat().st_mode & 0o7777 == 0o640
    os.utime(path, (10**9, 10**9))
    assert nobody.run("perl", "/app/toc.pl", path).returncode == 0
    assert path.stat().st_mtime == 10**9


def test_without_the_marks():
    for text in (
        "## a\n",
        "<!-- toc -->\n## a\n",
        "<!-- /toc -->\n<!-- toc -->\n",
        " <!-- toc -->\n<!-- /toc -->\n",
        "",
    ):
        made = nobody.folder({"x.md": text})
        done = nobody.run("perl", "/app/toc.pl", made / "x.md")
        assert done.returncode == 1, text
        assert done.stderr
        assert nobody.read(made / "x.md") == text
