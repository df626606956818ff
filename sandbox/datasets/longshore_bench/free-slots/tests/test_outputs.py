"""slots.py is called in a process of its own; answers come back as text."""

import ast
import itertools
import random

import nobody


def call(expression):
    """Return as data what the expression gives in a program that has imported slots."""
    program = f"import sys; sys.path.insert(0, '/app'); import slots; print(repr({expression}))"
    done = nobody.run("python3", "-c", program)
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout)


def raises(expression):
    program = (
        "import sys; sys.path.insert(0, '/app'); import slots\n"
        f"try:\n    {expression}\nexcept ValueError as error:\n    print('ValueError', error)\n"
    )
    said = nobody.run("python3", "-c", program).stdout
    return said.removeprefix("ValueError ") if said.startswith("ValueError") else None


def test_parse_time():
    good = {"9:05": 545, "09:05": 545, " 24:00 ": 1440, "0:00": 0, "00:00": 0, "23:59": 1439}
    assert call(f"[slots.parse_time(each) for each in {list(good)}]") == list(good.values())
    for bad in ("9:5", "24:01", "7:60", "-1:00", "12", "1:2:3", "+9:00", "", "109:00", "9 :00", "1_0:00", "9:005"):
        assert raises(f"slots.parse_time({bad!r})") is not None, bad


def test_format_time():
    assert call("[slots.format_time(each) for each in (0, 59, 545, 600, 1439, 1440)]") == [
        *("00:00", "00:59", "09:05", "10:00", "23:59", "24:00"),
    ]


def test_parse_bookings():
    lines = ["# comment\n", "9:00-10:15 x - y\n", "\n", "   \n", "23:00-01:30\tnight\n", "22:00-00:00", "22:00-24:00 z"]
    assert call(f"slots.parse_bookings({lines})") == [(540, 615), (1380, 1440), (0, 90), (1320, 1440), (1320, 1440)]
    assert call("slots.parse_bookings(['00:00-00:00', '8:00-8:00 all'])") == [(0, 1440), (480, 1440), (0, 480)]
    told = raises("slots.parse_bookings(['', '9:00-10:00', '9:00', '11:00-12:00'])")
    assert told is not None
    assert told.startswith("line 3:")


def covered(spans):
    return {minute for begin, end in spans for minute in range(begin, end)}


def test_merge():
    assert call("slots.merge([(0, 100), (10, 20), (100, 110), (200, 210)])") == [(0, 110), (200, 210)]
    assert call("(lambda spans: (slots.merge(spans), spans))([(5, 6), (1, 2)])") == ([(1, 2), (5, 6)], [(5, 6), (1, 2)])
    assert call("[slots.merge([(1, 2)]), slots.merge([(3, 4)]), slots.merge([])]") == [[(1, 2)], [(3, 4)], []]
    drawn = random.Random(7)
    many = [[(at, at + drawn.randint(1, 60)) for at in drawn.sample(range(600), 12)] for _ in range(40)]
    for spans, merged in zip(many, call(f"[slots.merge(each) for each in {many}]"), strict=True):
        assert covered(merged) == covered(spans)
        assert all(one[1] < other[0] for one, other in itertools.pairwise(merged))


def test_free():
    assert call("slots.free([(540, 600)])") == [(480, 540), (600, 1080)]
    assert call("slots.free([(0, 1440)])") == []
    assert call("slots.free([(480, 500), (530, 531)], least=30)") == [(500, 530), (531, 1080)]
    assert call("slots.free([(0, 500), (1100, 1200), (400, 450)], day=(480, 1080))") == [(500, 1080)]
    assert call("slots.free([(1100, 1200), (0, 100)], (480, 1080), 600)") == [(480, 1080)]
    assert call("slots.free([], (0, 1440), 1441)") == []
    drawn = random.Random(8)
    many = [[(at, at + drawn.randint(1, 90)) for at in drawn.sample(range(1300), 9)] for _ in range(40)]
    for spans, found in zip(many, call(f"[slots.free(each, (300, 900), 1) for each in {many}]"), strict=True):
        assert covered(found) == set(range(300, 900)) - covered(spans)


def test_command():
    def slots(text, *arguments):
        done = nobody.run("python3", "/app/slots.py", *arguments, stdin=text)
        return done.returncode, done.stdout, bool(done.stderr)

    assert slots("09:00-10:00 a\n") == (0, "08:00-09:00 60\n10:00-18:00 480\n", False)
    assert slots("", "--day", "0:00-24:00") == (0, "00:00-24:00 1440\n", False)
    assert slots("8:00-17:30\n", "--least", "31") == (1, "", False)
    assert slots("8:00-17:30\n", "--least", "30", "--day", "8:00-18:00") == (0, "17:30-18:00 30\n", False)
    for wrong in (["--day", "18:00-08:00"], ["--day", "08:00-08:00"], ["--least", "x"], ["--what"], ["--day"]):
        assert slots("", *wrong) == (2, "", True), wrong
    assert slots("9:00\n") == (2, "", True)
