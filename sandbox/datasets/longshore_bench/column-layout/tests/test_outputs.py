"""columns.py is run on tables that are made here."""

import nobody


def layout(text, *arguments):
    made = nobody.folder({"t": text})
    done = nobody.run("bash", "-c", 'python3 /app/columns.py "${@:2}" < "$1"', "bash", made / "t", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines(*rows, width=None):
    text = "".join("\t".join(row) + "\n" for row in rows)
    return layout(text, *(["--width", str(width)] if width else [])).split("\n")[:-1]


def test_example():
    assert layout(nobody.read("/app/example.tsv"), "--width", "26") == nobody.read("/app/example.txt")
    assert layout("name\tsize\n日本\t-3.5\n") == "name  size\n────  ────\n日本  -3.5\n"


def test_alignment():
    rows = [
        ["int", "mix", "signed", "text", "none", "pct"],
        ["1", "1", "+1_000.50", "a", "", "5%"],
        ["1,000,000", "x", "-2", "1", "", ""],
        ["20", "3", "", "2.", "", "100.0%"],
    ]
    assert lines(*rows) == [
        "      int  mix     signed  text  none     pct",
        "─────────  ───  ─────────  ────  ────  ──────",
        "        1  1    +1_000.50  a               5%",
        "1,000,000  x           -2  1",
        "       20  3               2.          100.0%",
    ]
    for wrong in ("1,,0", "1.", ".5", "1e3", "--1", "1%%", ",1", "٣", "1 0", "%"):
        assert lines(["header"], [wrong], ["1"])[2] == wrong, wrong
    assert lines(["only header", "x"]) == ["only header  x", "───────────  ─"]


def test_wide_and_combining_characters():
    rows = [["表", "e\u0301x", "z"], ["ﾊﾝ", "naïve", "1"], ["全角！", "zero\u200b", "22"], ["🚢", "a\u20dd", "3"]]
    assert lines(*rows) == [
        "表      e\u0301x      z",
        "──────  ─────  ──",
        "ﾊﾝ      naïve   1",
        "全角！  zero\u200b   22",
        "🚢      a\u20dd       3",
    ]


def test_ragged_rows_and_controls():
    text = "a\tb\n\n 1 \t\t c \r\n\tx\x01\x1by\n\u00a0z\u00a0\n"
    assert layout(text) == "a    b\n───  ────  ─\n1          c\n     x··y\n\u00a0z\u00a0\n".replace("c\n", "c\n")
    assert layout("") == layout("\n\n") == ""
    assert layout("\t\t\n") == "\n─  ─  ─\n"
    assert layout("h") == "h\n─\n"


def test_narrowing():
    one, two = "a" * 20, "b" * 20
    assert lines([one, two], width=42) == [f"{one}  {two}", f"{'─' * 20}  {'─' * 20}"]
    assert lines([one, two], width=41)[:2] == [f"{one}  {'b' * 19}", f"{' ' * 22}b"]
    assert lines([one, two], width=41)[2] == f"{'─' * 20}  {'─' * 19}"
    assert lines([one, two], width=36)[-1] == f"{'─' * 17}  {'─' * 17}"
    assert lines([one, "c", two], width=21)[-1] == f"{'─' * 8}  ─  {'─' * 8}"
    found = lines(["n" * 30, "short"], ["1", "x y"], width=20)
    assert found == [f"{'n' * 30}  short", f"{'─' * 30}  ─────", f"{' ' * 29}1  x y"]


def test_wrapping():
    found = lines(
        ["id", "text", "more"], ["7", "one two  three fourteen", "x"], ["12345", "a  b", "日本語の文字列です"], width=24
    )
    assert found == [
        *("   id  text      more", "─────  ────────  ────────"),
        *("    7  one two   x", "       three", "       fourteen"),
        *("12345  a  b      日本語の", "                 文字列で", "                 す"),
    ]
    assert lines(["h"], ["x" * 10 + " tail " + "e\u0301" * 12], width=20) == [
        *("h", "─" * 20, "x" * 10 + " tail", "e\u0301" * 12),
    ]
    assert lines(["k", "v" * 30], width=20)[0:2] == ["k  " + "v" * 17, "   " + "v" * 13]


def test_errors():
    assert layout("a\n", "--width", "20") == "a\n─\n"
    for text, *arguments in [
        ("a\n", "--width"),
        ("a\n", "--width", "19"),
        ("a\n", "--width", "x"),
        ("a\n", "b"),
        (b"\xff\n",),
    ]:
        made = nobody.folder({"t": text})
        done = nobody.run("bash", "-c", 'python3 /app/columns.py "${@:2}" < "$1"', "bash", made / "t", *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
