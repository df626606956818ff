"""greeter.py is started as nobody, signalled, and spoken to over loopback."""

import os
import select
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress

import nobody

S = 10.0


class Greeter:
    def __init__(self, folder, text):
        self.folder = folder
        self.configure(text)
        self.process = subprocess.Popen(
            ["python3", "/app/greeter.py", str(folder / "conf")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=nobody.ENV,
            cwd="/",
            user=nobody.NOBODY,
            group=nobody.NOBODY,
            extra_groups=[],
            bufsize=0,
        )

    def configure(self, text):
        (self.folder / "conf").write_text(text)

    def said(self, stream):
        """The next line, or nothing."""
        ready, _, _ = select.select([stream], [], [], S)
        return stream.readline().decode() if ready else ""

    def ready(self):
        line = self.said(self.process.stdout)
        assert line.startswith("ready "), f"it said {line!r}"
        return int(line.split()[1])

    def failed(self):
        return self.process.wait(S), self.process.stdout.read(), self.process.stderr.read().decode()


@contextmanager
def greeter(text="port = 0\ngreeting = Hi\n", folder=None):
    made = Greeter(folder or nobody.folder(), text)
    try:
        yield made
    finally:
        with suppress(ProcessLookupError):
            made.process.kill()
        made.process.wait(S)
        made.process.stdout.close()
        made.process.stderr.close()


@contextmanager
def connected(port):
    with socket.create_connection(("127.0.0.1", port), timeout=S) as client:
        yield client


def ask(client, text, wanted):
    client.sendall(text)
    got = b""
    while len(got) < len(wanted) and (more := client.recv(len(wanted) - len(got))):
        got += more
    assert got == wanted


def is_closed(client):
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def refused(port):
    """Return whether nobody listens there any more within the time."""
    until = time.monotonic() + S
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=S).close()
        except ConnectionError:
            return True
        time.sleep(0.02)
    return False


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def test_lines_are_answered():
    with greeter("\n# c\nport=0\ngreeting =  Grüß = Gott \n") as service:
        port = service.ready()
        hello = "Grüß = Gott, ".encode()
        with connected(port) as idle, connected(port) as half, connected(port) as client:
            half.sendall(b"mo")
            ask(client, b"a\nb b\n\n", hello + b"a\n" + hello + b"b b\n" + hello + b"\n")
            ask(
                client, "ü\r\n".encode() + b"x" * 10000 + b"\n", hello + "ü\r\n".encode() + hello + b"x" * 10000 + b"\n"
            )
            ask(half, b"re\n", hello + b"more\n")
            client.sendall(b"y" * 20000)
            assert is_closed(client)
            ask(idle, b"i\n", hello + b"i\n")
            idle.sendall(b"\xff\n")
            assert is_closed(idle)
            ask(half, b"still\n", hello + b"still\n")


def test_wrong_configurations():
    with greeter() as good:
        taken = good.ready()
        wrong = [
            "port = 0\n",
            "greeting = x\n",
            "port = x\ngreeting = y\n",
            "port = 70000\ngreeting = y\n",
            "port = -1\ngreeting = y\n",
        ]
        wrong += [
            "port = 0\ngreeting =\n",
            "port = 0\ngreeting = x\ncolour = red\n",
            "port = 0\nport = 0\ngreeting = x\n",
        ]
        wrong += ["port = 0\ngreeting = x\nnonsense\n", f"port = {taken}\ngreeting = x\n"]
        for text in wrong:
            with greeter(text) as bad:
                code, out, told = bad.failed()
                assert (code, out, told.count("\n")) == (2, b"", 1), (text, told)


def test_pidfile():
    folder = nobody.folder({"old": "999999999\n", "odd": "what\n", "alive": f"{os.getpid()}\n"})
    for name in ("old", "odd", "new"):
        path = folder / name
        with greeter(f"port = 0\ngreeting = x\npidfile = {path}\n", folder) as service:
            service.ready()
            assert nobody.read(path) == f"{service.process.pid}\n"
            with greeter(f"port = 0\ngreeting = x\npidfile = {path}\n", folder) as second:
                assert second.failed()[:2] == (2, b"")
            assert nobody.read(path) == f"{service.process.pid}\n"
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(S) == 0
            assert not path.exists()
    with greeter(f"port = 0\ngreeting = x\npidfile = {folder}/alive\n", folder) as service:
        assert service.failed()[:2] == (2, b"")
    assert (folder / "alive").read_text() == f"{os.getpid()}\n"


def test_reload():
    with greeter() as service:
        port = service.ready()
        with connected(port) as client:
            ask(client, b"a\nhal", b"Hi, a\n")
            service.configure(f"greeting = Ho\nport = 0\npidfile = {service.folder}/late\n")
            service.process.send_signal(signal.SIGHUP)
            assert service.ready() == port
            ask(client, b"f\n", b"Ho, half\n")
            assert not (service.folder / "late").exists()
            with connected(port) as other:
                ask(other, b"b\n", b"Ho, b\n")


def test_reload_that_fails():
    with greeter() as service, greeter() as other:
        port, taken = service.ready(), other.ready()
        with connected(port) as client:
            for text in ("port = 0\n", "port = 0\ngreeting = New\nx = y\n", "", f"port = {taken}\ngreeting = New\n"):
                service.configure(text)
                service.process.send_signal(signal.SIGHUP)
                assert service.said(service.process.stderr).startswith("reload failed"), text
                ask(client, b"a\n", b"Hi, a\n")
            (service.folder / "conf").unlink()
            service.process.send_signal(signal.SIGHUP)
            assert service.said(service.process.stderr).startswith("reload failed")
            with connected(port) as more:
                ask(more, b"b\n", b"Hi, b\n")
            service.configure("port = 0\ngreeting = New\n")
            service.process.send_signal(signal.SIGHUP)
            assert service.ready() == port
            ask(client, b"c\n", b"New, c\n")


def test_port_changes():
    with greeter() as service:
        port, new = service.ready(), free_port()
        with connected(port) as client:
            ask(client, b"a\n", b"Hi, a\n")
            service.configure(f"port = {new}\ngreeting = There\n")
            service.process.send_signal(signal.SIGHUP)
            assert service.ready() == new
            assert refused(port)
            ask(client, b"b\n", b"There, b\n")
            with connected(new) as other:
                ask(other, b"c\n", b"There, c\n")
            service.configure(f"port = {new}\ngreeting = Same\n")
            service.process.send_signal(signal.SIGHUP)
            assert service.ready() == new
            ask(client, b"d\n", b"Same, d\n")


def test_end_waits_for_lines():
    with greeter() as service:
        port = service.ready()
        with connected(port) as idle, connected(port) as half, connected(port) as slow:
            ask(idle, b"a\n", b"Hi, a\n")
            ask(half, b"b\nunfin", b"Hi, b\n")
            ask(slow, b"c\nd", b"Hi, c\n")
            service.process.send_signal(signal.SIGTERM)
            assert is_closed(idle)
            assert refused(port)
            assert service.process.poll() is None
            ask(half, b"ished\n", b"Hi, unfinished\n")
            assert is_closed(half)
            assert service.process.poll() is None
            ask(slow, b"e\n", b"Hi, de\n")
            assert is_closed(slow)
        assert service.process.wait(S) == 0


def test_second_term():
    folder = nobody.folder()
    with greeter(f"port = 0\ngreeting = x\npidfile = {folder}/pid\n", folder) as service:
        port = service.ready()
        with connected(port) as client:
            ask(client, b"a\nb", b"x, a\n")
            service.process.send_signal(signal.SIGTERM)
            assert refused(port)
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(S) == 1
        assert not (folder / "pid").exists()
