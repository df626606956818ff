"""ticket.sh is run in folders of nobody's; a slow check makes sure that calls overlap."""

import subprocess

import nobody


def ticket(made, **more):
    return nobody.run("bash", "/app/ticket.sh", made, **more)


def folder(check="", counter=None):
    made = nobody.folder({"check": f"#!/bin/bash\n{check}\n"} if check else {})
    if check:
        (made / "check").chmod(0o755)
    if counter is not None:
        (made / "counter").write_text(counter)
        nobody.os.chown(made / "counter", 65534, 65534)
    return made


def many(made, count):
    """Return what so many simultaneous calls print."""
    calls = [
        subprocess.Popen(
            ["bash", "/app/ticket.sh", str(made)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=nobody.ENV,
            user=65534,
            group=65534,
            extra_groups=[],
            text=True,
        )
        for _ in range(count)
    ]
    return [each.communicate(timeout=60)[0] for each in calls]


def test_one_after_the_other():
    made = folder()
    assert [ticket(made).stdout for _ in range(3)] == ["1\n", "2\n", "3\n"]
    assert nobody.read(made / "counter") == "3\n"
    assert ticket(folder(counter="4294967296\n")).stdout == "4294967297\n"
    seen = {each.name for each in made.iterdir() if not each.name.startswith(".")}
    assert seen == {"counter"}


def test_many_at_once():
    made = folder("echo begin $1 >> .trace; sleep 0.05; echo end $1 >> .trace")
    assert sorted(map(int, many(made, 16))) == list(range(1, 17))
    assert nobody.read(made / "counter") == "16\n"
    lines = [f"{what} {number}" for number in range(1, 17) for what in ("begin", "end")]
    assert nobody.read(made / ".trace").splitlines() == lines


def test_a_check_that_refuses():
    made = folder('echo $1 $# >> .tried; [ "$(wc -l < .tried)" -gt 2 ]', counter="41\n")
    for _ in range(2):
        done = ticket(made)
        assert (done.returncode, done.stdout) == (4, "")
        assert nobody.read(made / "counter") == "41\n"
    assert ticket(made).stdout.splitlines()[-1:] == ["42"]
    assert nobody.read(made / ".tried") == "42 1\n" * 3


def test_a_killed_call():
    made = folder("[ -e .killed ] || { touch .killed; kill -9 $PPID; }", counter="7\n")
    assert ticket(made).stdout == ""
    assert nobody.read(made / "counter") == "7\n"
    assert ticket(made, timeout=20).stdout == "8\n"


def test_damaged_counters():
    for text in ("", "\n", "12", "12\n\n", "x\n", "-1\n", "007\n", "1 2\n", " 5\n", "1+1\n"):
        made = folder(counter=text)
        done = ticket(made)
        assert (done.returncode, done.stdout) == (3, ""), repr(text)
        assert done.stderr
        assert (made / "counter").read_text() == text


def test_the_counter_is_replaced():
    made = folder(counter="99\n")
    with (made / "counter").open() as held:
        assert ticket(made).stdout == "100\n"
        assert held.read() == "99\n", "a reader of the old file saw it change"
    assert nobody.read(made / "counter") == "100\n"
