"""resample.py is run on readings that are made here; what is right is computed with fractions."""

import random
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import nobody

DAY = datetime(2024, 3, 31, tzinfo=UTC)


def stamp(seconds):
    return (DAY + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def resampled(lines, begin=0, end=900):
    made = nobody.folder({"r.csv": "".join(f"{each}\n" for each in lines)})
    done = nobody.run("python3", "/app/resample.py", made / "r.csv", stamp(begin), stamp(end), env={"TZ": "Asia/Tokyo"})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def fields(*readings, **more):
    """Return one station's quarters without its name and their begin."""
    found = resampled([f"{stamp(at)},s,{value}" for at, value in readings], **more)
    return [each.split(",", 2)[2] for each in found]


def test_example():
    lines = Path("/app/readings.csv").read_text().splitlines()
    assert resampled(lines, 0, 5400) == Path("/app/expected.csv").read_text().splitlines()
    assert len(resampled(lines, 0, 5400)) == 12


def test_weights_and_bounds():
    assert fields((0, "1"), (300, "4"), (899, "-7")) == ["900,2.988,-7.000,4.000"]
    assert fields((-100, "1"), (0, "2"), (900, "3")) == ["900,2.000,2.000,2.000"]
    assert fields((450, "5"), end=2700) == ["450,5.000,5.000,5.000", "900,5.000,5.000,5.000", "900,5.000,5.000,5.000"]
    drawn = random.Random(11)
    readings = {
        drawn.randrange(-4000, 9000): drawn.choice(["", str(drawn.randrange(-9999, 9999) / 1000)]) for _ in range(60)
    }
    times = sorted(readings)
    wanted = []
    for quarter in range(0, 9000, 900):
        held = []
        for at, after in zip(times, [*times[1:], 10**9], strict=True):
            length = min(after, at + 3600, quarter + 900) - max(at, quarter)
            if readings[at] and length > 0:
                held.append((length, Fraction(readings[at])))
        total = sum(length for length, _ in held)
        if not held:
            wanted.append("0,,,")
            continue
        mean = sum(length * value for length, value in held) / total * 1000
        rounded = int(abs(mean) + Fraction(1, 2)) * (1 if mean > 0 else -1)
        wanted.append(
            f"{total},{rounded / 1000:.3f},{float(min(held, key=lambda e: e[1])[1]):.3f},"
            f"{float(max(held, key=lambda e: e[1])[1]):.3f}".replace(",-0.000", ",0.000")
        )
    assert fields(*readings.items(), end=9000) == wanted


def test_exact_rounding():
    assert fields((0, "0"), (450, "0.001")) == ["900,0.001,0.000,0.001"]
    assert fields((0, "0"), (450, "-0.001")) == ["900,-0.001,-0.001,0.000"]
    assert fields((0, "0"), (500, "-0.001")) == ["900,0.000,-0.001,0.000"]
    assert fields((0, "0.002"), (450, "0.003")) == ["900,0.003,0.002,0.003"]
    assert fields((0, "0.008"), (450, "0.009")) == ["900,0.009,0.008,0.009"]
    assert fields((0, "123456789012345.671"), (450, "123456789012345.672")) == [
        "900,123456789012345.672,123456789012345.671,123456789012345.672"
    ]


def test_values_end():
    assert fields((0, "1"), end=4500) == ["900,1.000,1.000,1.000"] * 4 + ["0,,,"]
    assert fields((-3599, "1")) == ["1,1.000,1.000,1.000"]
    assert fields((-3600, "1")) == ["0,,,"]
    assert fields((0, "1"), (100, ""), (500, "3")) == ["500,2.600,1.000,3.000"]
    assert fields((-10000, "1"), (100, ""), end=1800) == ["0,,,", "0,,,"]


def test_same_times_and_offsets():
    lines = [f"{stamp(60)},s,1", "2024-03-31T02:00:00+02:00,s,9", "2024-03-30T18:31:00-05:30,s,2", f"{stamp(120)},s,3"]
    assert resampled([lines[3], *lines[:3]]) == [f"s,{stamp(0)},900,3.333,2.000,9.000"]
    assert resampled([f"{stamp(0)},s,1", f"{stamp(0)},s,"]) == []


def test_stations():
    lines = [f"{stamp(0)},{name},1" for name in ("b", "a b", "B", "ä", "", "c")]
    lines += [f"{stamp(10**6)},far,1", f"{stamp(0)},none,", f"{stamp(0)},a,2"]
    found = resampled(lines, 0, 900)
    assert [each.split(",")[0] for each in found] == ["", "B", "a", "a b", "b", "c", "far", "ä"]
    assert found[6] == f"far,{stamp(0)},0,,,"


def test_other_lines():
    bad = ["", "x", "2024-03-31T00:00:00,s,5", "2024-13-31T00:00:00Z,s,5", f"{stamp(0)},s", f"{stamp(0)},s,1.2345"]
    bad += [f"{stamp(0)},s,{value}" for value in ("1e3", "nan", ".5", "5.", "+5", "0x5", "5,6", "--5", " 5")]
    bad += ["2024-03-31 00:00:00Z,s,5", "2024-03-31T25:00:00Z,s,5"]
    assert resampled([*bad, f"{stamp(-60)},s,8.125", *bad]) == [f"s,{stamp(0)},900,8.125,8.125,8.125"]
