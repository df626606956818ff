"""report.sh is run on exports that are made here."""

from pathlib import Path

import nobody

HEADER = "date;category;amount;note\n"


def report(text):
    made = nobody.folder({"export.csv": text})
    return nobody.run("bash", "/app/report.sh", made / "export.csv", cwd=made)


def lines(*rows, header=HEADER):
    done = report(header + "".join(f"{row}\n" for row in rows))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_example():
    done = report(Path("/app/export.csv").read_bytes())
    assert done.stdout == "travel 1200.00\nfood 12.10\nbooks 3.00\nother 3.00\nTOTAL 1218.10\n"
    assert done.stderr == "line 7: bad amount\n"


def test_amounts():
    rows = [
        'd;a;"1,000";',
        'd;b;" (2,345.6) ";',
        "d;c;-0.05;",
        "d;e;  7.5\t;",
        'd;f;"(0.10)"',
        "d;g;1,234,567.89;x;y;z",
    ]
    assert lines(*rows) == [
        *("g 1234567.89", "a 1000.00", "e 7.50", "c -0.05", "f -0.10", "b -2345.60", "TOTAL 1233229.64"),
    ]


def test_bad_amounts_are_told():
    bad = ["1.234", "1,23", "--1", "1.", ".5", "12 EUR", "", "1e3", "(1", "0x10", "-(1)", "1 000", "(-1)"]
    done = report(HEADER + "".join(f"d;bad;{each};n\n" for each in bad) + "d;ok;1;n\nd;short\n")
    assert done.stdout == "ok 1.00\nTOTAL 1.00\n"
    wrong = [*range(2, len(bad) + 2), len(bad) + 3]
    assert done.stderr.splitlines() == [f"line {number}: bad amount" for number in wrong]


def test_categories():
    rows = ["d; Office  supplies ;1;", "d;OFFICE  SUPPLIES;2;", "d;  ;3;", "d;Other;4;", "d;a/b%s;5;"]
    crlf = HEADER.strip() + "\r\n" + "\r\n".join(rows) + "\r\n\r\n"
    assert report(crlf).stdout.splitlines() == ["other 7.00", "a/b%s 5.00", "office  supplies 3.00", "TOTAL 15.00"]
    assert lines() == ["TOTAL 0.00"]


def test_order():
    rows = ["d;b z;10;", "d;b a;10;", "d;c 99;9;", "d;a 1;100;", "d;d;-5;", "d;e;-50;", "d;b;10;"]
    assert lines(*rows) == [
        "a 1 100.00",
        "b 10.00",
        "b a 10.00",
        "b z 10.00",
        "c 99 9.00",
        "d -5.00",
        "e -50.00",
        "TOTAL 84.00",
    ]


def test_exact_to_the_cent():
    rows = ["d;x;999999999999.01;"] + ["d;x;0.01;"] * 98 + ["d;y;0.10;"] * 1000 + ["d;y;-0.10;"] * 1000
    assert lines(*rows) == ["x 999999999999.99", "y 0.00", "TOTAL 999999999999.99"]
