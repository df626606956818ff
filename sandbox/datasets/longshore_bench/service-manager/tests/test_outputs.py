"""svc is run on folders of services that are made here; what it started is looked up in /proc."""

import os
import shutil
import signal
from contextlib import contextmanager, suppress
from pathlib import Path

import nobody

SLEEP = "exec=exec sleep 1000\n"


@contextmanager
def services(**files):
    """Yield a folder, and kill what is left of nobody's processes at the end."""
    made = nobody.folder({f"{name.replace('_', '-')}.service": text for name, text in files.items()})
    try:
        yield made
    finally:
        for pid in processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def stat(pid):
    """State, parent, group and session of a process."""
    with suppress(OSError):
        state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
        return state, *map(int, numbers)
    return None


def processes():
    """Nobody's, without zombies."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError):
                state = stat(int(each.name))
                if each.stat().st_uid == nobody.NOBODY and state and state[0] != "Z":
                    found.append(int(each.name))
    return found


def svc(folder, *arguments):
    out = folder / ".out"
    # Not through a pipe: what was started must not hold it open, and need not.
    script = '/app/svc "$@" > .out 2> .err < /dev/null; echo $?'
    done = nobody.run("bash", "-c", script, "bash", folder, *arguments, cwd=folder, timeout=30)
    return int(done.stdout), nobody.read(out).splitlines()


def errors(folder):
    return nobody.read(folder / ".err").splitlines()


def pid_of(folder, name):
    text = nobody.read(folder / f"run/{name}.pid")
    return int(text) if text.strip().isdigit() else 0


def test_example():
    with services() as folder:
        for each in Path("/app/example").glob("*.service"):
            shutil.copy(each, folder)
        assert svc(folder, "start") == (0, ["started cache", "started db", "started web"])
        code, lines = svc(folder, "status")
        assert (code, lines) == (0, [f"{name} running {pid_of(folder, name)}" for name in ("cache", "db", "web")])
        assert svc(folder, "start") == (0, [])
        assert svc(folder, "stop") == (0, ["stopped web", "stopped db", "stopped cache"])
        assert svc(folder, "status") == (3, ["cache stopped", "db stopped", "web stopped"])
        assert processes() == []


def test_order_of_starts():
    late = "exec=sleep 0.3; echo {0} >> order; touch {0}.up; exec sleep 1000\nready={0}.up\n"
    with services(
        a=late.format("a") + "needs=d c\n",
        b=late.format("b"),
        c=late.format("c"),
        d=late.format("d") + "needs=e\n",
        e=late.format("e"),
        z_1=late.format("z-1") + "needs=b\n",
    ) as folder:
        assert svc(folder, "start", "a") == (0, [f"started {name}" for name in ("c", "e", "d", "a")])
        assert nobody.read(folder / "order").split() == ["c", "e", "d", "a"]
        assert svc(folder, "start", "z-1", "a") == (0, ["started b", "started z-1"])


def test_started_once_and_on_their_own():
    with services(
        a="exec=echo out; echo err >&2; pwd; readlink /proc/self/fd/0; exec sleep 1000\n\n# c\n",
        b="exec=x='a=b  c'; echo \"$x\"; touch b.up; exec sleep 1000\nready=b.up",
    ) as folder:
        (folder / "a.log").write_text("before\n")
        os.chown(folder / "a.log", 65534, 65534)
        (folder / "b.up").write_text("old")
        assert svc(folder, "start") == (0, ["started a", "started b"])
        pids = [pid_of(folder, name) for name in "ab"]
        for pid in pids:
            state = stat(pid)
            assert state is not None
            assert state[3] == pid, "it leads no session"
        assert svc(folder, "start", "a", "b") == (0, [])
        assert [pid_of(folder, name) for name in "ab"] == pids
        assert nobody.read(folder / "a.log") == f"before\nout\nerr\n{folder}\n/dev/null\n"
        assert nobody.read(folder / "b.log") == "a=b  c\n"
        assert nobody.read(folder / "b.up") == ""


def test_failed_starts():
    with services(
        a=SLEEP,
        b="exec=sleep 1000 & sleep 1001\nready=never\nwait=1\nneeds=a\n",
        c="exec=exit 3\nready=c.up\nwait=30\n",
        d=SLEEP + "needs=b\n",
        e=SLEEP,
    ) as folder:
        assert svc(folder, "start", "d") == (1, ["started a", "failed b"])
        assert processes() == [pid_of(folder, "a")]
        assert sorted(each.name for each in (folder / "run").iterdir()) == ["a.pid"]
        assert svc(folder, "start", "c", "e") == (1, ["failed c"])
        assert svc(folder, "status", "a", "c") == (3, [f"a running {pid_of(folder, 'a')}", "c stopped"])


def test_order_of_stops():
    with services(
        a=SLEEP, b=SLEEP + "needs=a\n", c=SLEEP + "needs=a\n", d=SLEEP + "needs=b\n", e=SLEEP, f=SLEEP + "needs=e\n"
    ) as folder:
        assert svc(folder, "start")[0] == 0
        assert svc(folder, "stop", "c") == (0, ["stopped c"])
        assert svc(folder, "stop", "b") == (0, ["stopped d", "stopped b"])
        assert svc(folder, "start")[1] == ["started b", "started c", "started d"]
        assert svc(folder, "stop", "a", "e") == (0, [f"stopped {name}" for name in ("f", "e", "d", "c", "b", "a")])
        assert svc(folder, "stop") == (0, [])
        assert processes() == []


def test_whole_sessions_are_stopped():
    child = "(trap 'echo child >> got; exit' TERM; touch up; while :; do sleep 0.05; done) &"
    stubborn = f"exec=trap '' TERM; {child} while :; do sleep 0.05; done\n"
    with services(a=stubborn + "ready=up\ngrace=1\n", b=SLEEP) as folder:
        assert svc(folder, "start") == (0, ["started a", "started b"])
        assert len(processes()) > 2
        assert svc(folder, "stop", "a") == (0, ["stopped a"])
        assert nobody.read(folder / "got") == "child\n"
        assert processes() == [pid_of(folder, "b")]
        assert not (folder / "run/a.pid").exists()


def test_status_and_old_pid_files():
    with services(a=SLEEP, b=SLEEP, c=SLEEP) as folder:
        assert svc(folder, "start", "a", "b")[0] == 0
        os.kill(pid_of(folder, "a"), signal.SIGKILL)
        (folder / "run/c.pid").write_text("1\n" if (stat(1) or "....")[3] != 1 else "999999999\n")
        os.chown(folder / "run/c.pid", 65534, 65534)
        pid = pid_of(folder, "b")
        assert svc(folder, "status", "c", "b", "a") == (3, ["a dead", f"b running {pid}", "c dead"])
        assert svc(folder, "status", "b") == (0, [f"b running {pid}"])
        assert svc(folder, "stop", "c") == (0, [])
        assert not (folder / "run/c.pid").exists()
        assert svc(folder, "start", "a") == (0, ["started a"])
        assert svc(folder, "status") == (3, [f"a running {pid_of(folder, 'a')}", f"b running {pid}", "c stopped"])


def test_what_is_wrong_does_nothing():
    for wrong in (
        "",
        "needs=a\n",
        SLEEP + "needs=ghost\n",
        SLEEP + "wait=x\n",
        SLEEP + "grace=-1\n",
        SLEEP + "colour=red\n",
        SLEEP + "needs=b\n",
    ):
        with services(a=SLEEP, b=wrong) as folder:
            for command in ("start", "status"):
                assert svc(folder, command, "a") == (2, []), wrong
                assert len(errors(folder)) == 1
            assert processes() == []
    with services(a=SLEEP) as folder:
        assert svc(folder, "start", "a", "b") == (2, [])
        assert svc(folder, "start") == (0, ["started a"])
