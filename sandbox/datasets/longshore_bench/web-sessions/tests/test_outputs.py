"""sessions.sh is run on logs that are made here."""

from pathlib import Path

import nobody


def line(time, path="/", ip="192.0.2.1", agent="A/1", method="GET", status=200, offset="+0000", size="1", ref="-"):
    return f'{ip} - - [{time} {offset}] "{method} {path} HTTP/1.1" {status} {size} "{ref}" "{agent}"'


def run(*lines):
    made = nobody.folder({"x.log": "".join(f"{each}\n" for each in lines)})
    return nobody.run("bash", "/app/sessions.sh", made / "x.log", env={"TZ": "America/New_York"})


def visits(*lines):
    done = run(*lines)
    assert done.stderr == "skipped 0\n"
    return [tuple(each.split("\t")) for each in done.stdout.splitlines()]


def test_example():
    done = run(*Path("/app/access.log").read_text().splitlines())
    assert done.stdout.splitlines() == [
        "2024-03-10T12:10:00Z\t198.51.100.7\t1\t0\t/\t/",
        "2024-03-10T12:55:36Z\t203.0.113.9\t2\t1800\t/shop\t/cart",
        "2024-03-10T13:55:37Z\t203.0.113.9\t1\t0\t/late\t/late",
    ]
    assert done.stderr == "skipped 1\n"


def test_what_is_a_page_view():
    at = "01/Jan/2024:00:00:0"
    found = visits(
        line(at + "0", "/a.css?v=1"),
        line(at + "1", "/b?x=.css&y=?"),
        line(at + "2", "/c", method="HEAD"),
        line(at + "3", "/d", status=404),
        line(at + "4", "/e", status=199),
        line(at + "5", "/f", agent="Robot; x"),
        line(at + "6", "/g.JS", status=399),
        line(at + "7", "/h.icon", size="-", ref='\\"bot\\"'),
        line(at + "8", "/favicon.ico"),
        line(at + "9", "/i", status=400),
    )
    assert found == [("2024-01-01T00:00:01Z", "192.0.2.1", "3", "6", "/b", "/h.icon")]


def test_times_and_offsets():
    found = visits(
        line("29/Feb/2024:23:59:59 ".strip(), "/a", offset="-0130"),
        line("01/Mar/2024:07:30:00", "/b", offset="+0545"),
        line("31/Dec/1999:23:59:59", "/c"),
    )
    assert found == [
        ("1999-12-31T23:59:59Z", "192.0.2.1", "1", "0", "/c", "/c"),
        ("2024-03-01T01:29:59Z", "192.0.2.1", "2", "901", "/a", "/b"),
    ]


def test_visits_end_after_half_an_hour():
    found = visits(
        *(line(f"05/May/2024:{time}", f"/{n}") for n, time in enumerate(["10:00:00", "10:30:00", "11:00:01"]))
    )
    assert [each[2:] for each in found] == [("2", "1800", "/0", "/1"), ("1", "0", "/2", "/2")]


def test_log_out_of_order():
    found = visits(
        line("05/May/2024:10:40:00", "/third"),
        line("05/May/2024:10:00:00", "/first"),
        line("05/May/2024:10:20:00", "/second"),
        line("05/May/2024:10:20:00", "/second again"[:7]),
        line("05/May/2024:10:40:00", "/last"),
    )
    assert found == [("2024-05-05T10:00:00Z", "192.0.2.1", "5", "2400", "/first", "/last")]


def test_visitors_and_sorting():
    at = "05/May/2024:10:00:00"
    found = visits(
        line(at, "/1", ip="9.9.9.9", agent="b"),
        line(at, "/2", ip="10.0.0.1"),
        line(at, "/3", ip="9.9.9.9", agent="B"),
        line(at, "/4", ip="2001:db8::1"),
        line(at, "/5", ip="9.9.9.9", agent='a \\" c'),
        line(at, "/6", ip="9.9.9.9", agent="b"),
    )
    assert [each[1:3] + each[4:] for each in found] == [
        *(("10.0.0.1", "1", "/2", "/2"), ("2001:db8::1", "1", "/4", "/4"), ("9.9.9.9", "1", "/3", "/3")),
        *(("9.9.9.9", "1", "/5", "/5"), ("9.9.9.9", "2", "/1", "/6")),
    ]


def test_lines_of_another_form():
    good = line("05/May/2024:10:00:00", "/ok")
    done = run(
        good,
        "",
        "nonsense",
        good.replace("GET /ok HTTP/1.1", "GET ok HTTP/1.1"),
        good.replace("GET /ok HTTP/1.1", "GET /ok"),
        good + " more",
        good.replace('"A/1"', '"A/1'),
        good.replace("May", "Mai"),
        good.replace(" 200 ", " - "),
    )
    assert done.stdout == "2024-05-05T10:00:00Z\t192.0.2.1\t1\t0\t/ok\t/ok\n"
    assert done.stderr == "skipped 8\n"
