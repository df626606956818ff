"""The table, column by column."""

import csv
from pathlib import Path

WANTED = {
    "West": ("1", "1", "99.99"),
    "South, Coast": ("2", "2", "100.00"),
    "North": ("2", "3", "36.80"),
    "unknown": ("3", "3", "36.30"),
}


def text():
    path = Path("/app/regions.csv")
    assert path.is_file()
    return path.read_bytes().decode()


def rows():
    return list(csv.reader(text().splitlines()))[1:]


def test_header_and_form():
    lines = text().split("\n")
    assert lines[0] == "region,customers,orders,revenue"
    assert lines[-1] == ""
    assert '"South, Coast",' in text()
    assert text().count('"') == 2


def test_regions():
    assert sorted(row[0] for row in rows()) == sorted(WANTED)


def test_counts():
    assert {row[0]: (row[1], row[2]) for row in rows()} == {name: each[:2] for name, each in WANTED.items()}


def test_revenue():
    assert {row[0]: row[3] for row in rows()} == {name: each[2] for name, each in WANTED.items()}


def test_order_of_lines():
    assert [row[0] for row in rows()] == ["South, Coast", "West", "North", "unknown"]
