"""flatten.jq is run by the image's jq on events that are made here."""

import csv
import json
from pathlib import Path

import nobody


def flattened(text):
    made = nobody.folder({"e.json": text})
    done = nobody.run("jq", "-rf", "/app/flatten.jq", made / "e.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('"id","at","user","path","value"\n')
    return done.stdout


def rows(*events):
    return list(csv.reader(flattened("\n".join(map(json.dumps, events))).splitlines()))[1:]


def test_example():
    assert flattened(Path("/app/events.json").read_text()) == (
        '"id","at","user","path","value"\n'
        '1,"2024-02-29T23:59:59Z","ann","items[0].price","1.5"\n'
        '1,"2024-02-29T23:59:59Z","ann","items[1].price","null"\n'
        '1,"2024-02-29T23:59:59Z","ann","ok","true"\n'
        '"e-2","1970-01-01T00:00:00Z","bob","","null"\n'
        '3,"1970-01-02T00:00:00Z","","a.\'x.y\'[0]","say ""hi"""\n'
        '3,"1970-01-02T00:00:00Z","","a.\'x.y\'[1]","[]"\n'
    )


def test_paths():
    data = {"b": [[1, 2], {"c d": 3}], "a": {"x[0]": {"y": 4}, "": 5, "]": [6]}, ".": 7}
    found = {row[3]: row[4] for row in rows({"id": 1, "at": 1, "data": data})}
    assert found == {
        "b[0][0]": "1",
        "b[0][1]": "2",
        "b[1].c d": "3",
        "a.'x[0]'.y": "4",
        "a.": "5",
        "a.']'[0]": "6",
        "'.'": "7",
    }
    assert [row[3] for row in rows({"id": 1, "at": 1, "data": [[True], {"k": []}]})] == ["[0][0]", "[1].k"]


def test_values():
    values = ["text", "", None, False, 0, -1.25, [], {}, "q\"u,o'te", "ü", "null"]
    found = rows({"id": "x", "at": 1, "data": values})
    assert [row[4] for row in found] == [
        "text",
        "",
        "null",
        "false",
        "0",
        "-1.25",
        "[]",
        "{}",
        "q\"u,o'te",
        "ü",
        "null",
    ]
    assert [row[3] for row in found] == [f"[{number}]" for number in range(len(values))]


def test_users_and_times():
    users = ["ann", {"name": "bob"}, {"name": None}, {}, None, "", {"name": "x", "more": [1]}]
    times = [1709251199.999, 0, 951782400.5, 4102444799, 1, 2, 3]
    found = rows(
        *({"id": n, "at": at, "user": user, "data": n} for n, (user, at) in enumerate(zip(users, times, strict=True)))
    )
    assert [row[2] for row in found] == ["ann", "bob", "", "", "", "", "x"]
    assert [row[1] for row in found][:4] == [
        *("2024-02-29T23:59:59Z", "1970-01-01T00:00:00Z", "2000-02-29T00:00:00Z", "2099-12-31T23:59:59Z"),
    ]
    assert rows({"id": 1, "at": 0, "data": 5}) == [["1", "1970-01-01T00:00:00Z", "", "", "5"]]


def test_events_without_data():
    events = [{"id": 1, "at": 0}, *({"id": 2, "at": 0, "data": each} for each in (None, "s", [], {}, 1, False))]
    assert [(row[3], row[4]) for row in rows(*events)] == [
        *(("", "null"), ("", "null"), ("", "s"), ("", "[]"), ("", "{}"), ("", "1"), ("", "false")),
    ]


def test_what_is_no_event():
    good = {"id": 9, "at": 1, "data": 1}
    bad = ["text", 1, None, [good], {"at": 1}, {"id": 1}, {"id": 1, "at": "1"}, {"id": 1, "at": None}]
    assert [row[0] for row in rows(*bad, good, *bad)] == ["9"]
    assert flattened('{"id":1,"at":1,"data":{"a":1}}{"id":2,"at":1,"data":2}\n').count("\n") == 3
    assert rows(good, good) == rows(good) * 2
