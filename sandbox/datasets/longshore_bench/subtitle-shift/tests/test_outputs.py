"""srt.py is run on subtitles that are made here."""

import base64
from pathlib import Path

import nobody


def run(data, *arguments):
    made = nobody.folder({"in.srt": data})
    script = 'set -o pipefail; python3 /app/srt.py "${@:2}" < "$1" | base64 -w0'
    done = nobody.run("bash", "-c", script, "bash", made / "in.srt", *arguments)
    return done.returncode, base64.b64decode(done.stdout).decode("utf-8", "replace"), done.stderr


def srt(data, *arguments):
    code, out, told = run(data, *arguments)
    assert code == 0, told
    return out


def title(begin, end, number=1, text="x"):
    return f"{number}\n{begin} --> {end}\n{text}\n\n"


def times(data, *arguments):
    return [line for line in srt(data, *arguments).split("\n") if "-->" in line]


def test_example():
    data = Path("/app/example.srt").read_bytes()
    assert srt(data) == (
        "1\n00:00:00,005 --> 00:00:01,000\n♪\n\n2\n00:00:01,000 --> 00:00:03,499\n- Hello?\n- Who is there?\n\n"
        "3\n00:00:03,500 --> 00:00:05,000 X1:40 Y1:20\n<i>Nobody.</i>\n\n"
    )


def test_forms_of_times():
    data = (
        title("1:2:3.5", "1:2:3,050")
        + title("  002:59:59 \t", "123:00:00.001\tand more  ")
        + title("1:2:4", "01:02:04,9")
    )
    assert times(data) == [
        *("01:02:03,005 --> 01:02:03,050", "01:02:04,000 --> 01:02:04,009", "02:59:59,000 --> 123:00:00,001 and more"),
    ]
    assert times(title("99:59:59,999", "100:00:00"), "--shift", "1") == ["100:00:00,000 --> 100:00:00,001"]


def test_shift_and_from():
    data = (
        title("0:0:10", "0:0:11", 7)
        + title("0:0:20", "0:0:21", 4)
        + title("0:0:30", "0:0:31", 4)
        + title("0:0:25", "0:0:26", 2)
    )
    assert times(data, "--shift", "1500")[::3] == ["00:00:11,500 --> 00:00:12,500", "00:00:31,500 --> 00:00:32,500"]
    assert times(data, "--from", "4", "--shift", "-5000") == [
        *("00:00:10,000 --> 00:00:11,000", "00:00:15,000 --> 00:00:16,000", "00:00:20,000 --> 00:00:21,000"),
        "00:00:25,000 --> 00:00:26,000",
    ]
    assert times(data, "--shift", "9", "--from", "3") == times(data)
    assert times(data, "--from", "7", "--shift", "9") == times(data, "--shift", "9")


def test_stretch_rounds_halves_up():
    data = title("0:0:0.1", "0:0:0.3") + title("0:0:1.001", "0:0:2.025") + title("1:0:0", "1:0:1")
    assert times(data, "--stretch", "1/2") == [
        *("00:00:00,001 --> 00:00:00,002", "00:00:00,501 --> 00:00:01,013", "00:30:00,000 --> 00:30:00,500"),
    ]
    assert times(data, "--stretch", "25000/23976", "--shift", "-4")[-1] == "01:02:33,750 --> 01:02:34,792"
    assert times(data, "--shift", "1", "--stretch", "2/1")[0] == "00:00:00,003 --> 00:00:00,007"


def test_before_zero_and_order():
    data = (
        title("0:0:9", "0:0:12", text="c")
        + title("0:0:1", "0:0:2", text="gone")
        + title("0:0:2", "0:0:4", text="a")
        + title("0:0:8", "0:0:7", text="b")
        + title("0:0:9", "0:0:10", text="d")
        + title("0:0:9,001", "0:0:10", text="e")
    )
    out = srt(data, "--shift", "-3000")
    assert out == (
        title("00:00:00,000", "00:00:01,000", 1, "a")
        + title("00:00:05,000", "00:00:05,000", 2, "b")
        + title("00:00:06,000", "00:00:06,000", 3, "c")
        + title("00:00:06,000", "00:00:06,000", 4, "d")
        + title("00:00:06,001", "00:00:07,000", 5, "e")
    )
    assert srt(title("0:0:1", "0:0:2"), "--shift", "-2000") == ""


def test_text_is_kept():
    data = (
        "\ufeff\r\n \r\n 12 \r\n0:0:1 --> 0:0:2  {\\an8}  x \r\n  <b>ü</b>  \r\n1\r\n0:0:5 --> 0:0:6\r\n\r\n"
        "\r\n3\r\n0:0:3 --> 0:0:4\r\n\r\n9\n0:0:7 --> 0:0:8"
    )
    assert srt(data.encode()) == (
        "1\n00:00:01,000 --> 00:00:02,000 {\\an8}  x\n  <b>ü</b>  \n1\n0:0:5 --> 0:0:6\n\n"
        "2\n00:00:03,000 --> 00:00:04,000\n\n3\n00:00:07,000 --> 00:00:08,000\n\n"
    )
    assert srt(b"") == ""


def test_wrong_lines():
    good = title("0:0:1", "0:0:2")
    for data, line in [
        ("text\n", 1),
        (good + "1\nno times\n", 6),
        (good + "\nx1\n0:0:1 --> 0:0:2\n", 6),
        (title("0:60:0", "1:0:0"), 2),
        (title("0:0:1", "0:0:60"), 2),
        (title("0:0:1,0000", "0:0:2"), 2),
        ("1\n0:0:1-->0:0:2\n", 2),
        (title("1:1", "0:0:2"), 2),
        (title("0:0:1", "0:0:2x"), 2),
        (good + good + "5\n", 10),
    ]:
        code, out, told = run(data)
        assert (code, out) == (1, ""), data
        assert told.startswith(f"line {line}:"), (data, told)


def test_wrong_arguments():
    good = title("00:00:01,000", "00:00:02,000")
    assert run(good) == (0, good, "")
    for wrong in (
        ["--shift"],
        ["--shift", "x"],
        ["--shift", "1.5"],
        ["--stretch", "1"],
        ["--stretch", "0/1"],
        ["--stretch", "1/0"],
        ["--what", "1"],
        ["1"],
        ["--from", "-1"],
    ):
        code, out, _ = run(good, *wrong)
        assert (code, out) == (2, ""), wrong
