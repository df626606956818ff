"""kv.py is started as nobody, and spoken to over loopback."""

import select
import signal
import socket
import subprocess
from contextlib import contextmanager, suppress

import nobody
import pytest


class Server:
    def __init__(self, folder):
        self.process = subprocess.Popen(
            ["python3", "/app/kv.py", str(folder), "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=nobody.ENV,
            cwd="/",
            user=nobody.NOBODY,
            group=nobody.NOBODY,
            extra_groups=[],
        )
        ready, _, _ = select.select([self.process.stdout], [], [], 10)
        line = self.process.stdout.readline() if ready else b""
        assert line.startswith(b"listening "), f"it said {line!r}"
        self.port = int(line.split()[1])

    def end(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        code = self.process.wait(10)
        self.process.stdout.close()
        return code


@contextmanager
def serving(folder):
    server = Server(folder)
    try:
        yield server
    finally:
        with suppress(ProcessLookupError):
            server.process.kill()
        server.process.wait(10)


@pytest.fixture
def folder():
    return nobody.folder({"data/.keep": ""}) / "data"


@contextmanager
def connected(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        yield client


def ask(client, request, size):
    """Send, and read as many bytes as are wanted."""
    client.sendall(request)
    got = b""
    while len(got) < size and (more := client.recv(size - len(got))):
        got += more
    return got


def check(client, *talk):
    for request, wanted in talk:
        assert ask(client, request, len(wanted)) == wanted, request[:80]


def put(key, value):
    return b"SET %s %d\n%s\n" % (key, len(value), value)


def answer(value):
    return b"VALUE %d\n%s\n" % (len(value), value)


BAD = b"ERROR bad request\n"


def test_values(folder):
    with serving(folder) as server, connected(server) as client:
        every = bytes(range(256)) * 256
        check(
            client,
            (b"PING\n", b"PONG\n"),
            (b"GET a\n", b"NONE\n"),
            (put(b"a", b"one\r\ntwo\n"), b"OK\n"),
            (b"GET a\r\n", answer(b"one\r\ntwo\n")),
            (put(b"a", b""), b"OK\n"),
            (b"GET a\n", b"VALUE 0\n\n"),
            (put(b"K.x_y:z-" + b"9" * 92, every), b"OK\n"),
            (b"GET K.x_y:z-" + b"9" * 92 + b"\n", answer(every)),
            (b"DEL a\n", b"OK\n"),
            (b"DEL a\n", b"NONE\n"),
            (b"QUIT\n", b"BYE\n"),
        )
        assert client.recv(1) == b""


def test_numbers_and_keys(folder):
    with serving(folder) as server, connected(server) as client:
        check(
            client,
            (b"KEYS\n", b"COUNT 0\n"),
            (b"INCR n\n", answer(b"1")),
            (b"INCR n\n", answer(b"2")),
            (put(b"n", b"-1"), b"OK\n"),
            (b"INCR n\n", answer(b"0")),
            (put(b"n", b"9" * 60), b"OK\n"),
            (b"INCR n\n", answer(b"1" + b"0" * 60)),
            *(
                (put(b"t", bad) + b"INCR t\nGET t\n", b"OK\nERROR not a number\n" + answer(bad))
                for bad in (b"", b"x", b"1.0", b"+1", b" 1", b"1\n", b"--1", b"1_0", "١".encode())
            ),
            (put(b"Z", b"1") + put(b"na", b"1") + put(b"n:b", b"1"), b"OK\n" * 3),
            (b"KEYS\n", b"COUNT 5\nZ\nn\nn:b\nna\nt\n"),
            (b"KEYS n\n", b"COUNT 3\nn\nn:b\nna\n"),
            (b"KEYS n:b:\n", b"COUNT 0\n"),
        )  # fmt: skip


def test_bad_requests(folder):
    with serving(folder) as server:
        with connected(server) as client:
            for bad in [
                b"",
                b"ping",
                b"PING x",
                b"GET",
                b"GET a b",
                b"GET  a",
                b"GET \xc3\xa9",
                b"DEL",
                b"INCR a/b",
                b"NO",
            ]:
                check(client, (bad + b"\n", BAD))
            check(client, (b"GET " + b"k" * 101 + b"\n", BAD), (b" PING\n", BAD), (b"KEYS a b\n", BAD))
            check(client, (b"QUIT now\n", BAD))
            check(client, (b"COMMIT\n", BAD), (b"DROP\n", BAD), (b"PING\n", b"PONG\n"))
            check(client, (put(b"bad/key", b"x"), BAD), (b"PING\n", b"PONG\n"), (b"KEYS\n", b"COUNT 0\n"))
        for closing in (
            b"SET a\n",
            b"SET a -1\n",
            b"SET a 65537\n",
            b"SET a x\n",
            b"SET a 1\nxyPING\n",
            b"Y" * 1001 + b"\n",
        ):
            with connected(server) as client:
                assert ask(client, closing, 200) == BAD, closing[:20]
        with connected(server) as client:
            check(client, (b"KEYS\n", b"COUNT 0\n"))


def test_transactions(folder):
    with serving(folder) as server, connected(server) as one, connected(server) as other:
        check(one, (put(b"a", b"0") + b"BEGIN\n", b"OK\nOK\n"), (b"BEGIN\n", BAD))
        check(one, (put(b"a", b"5") + b"INCR a\nDEL b\nINCR c\nDEL a\n", b"QUEUED\n" * 5))
        check(one, (b"GET a\nKEYS\nPING\n", answer(b"0") + b"COUNT 1\na\nPONG\n"))
        check(other, (b"GET a\nINCR c\n", answer(b"0") + answer(b"1")))
        check(one, (b"COMMIT\n", b"COUNT 5\nOK\n" + answer(b"6") + b"NONE\n" + answer(b"2") + b"OK\n"))
        check(other, (b"KEYS\n", b"COUNT 1\nc\n"))
        check(one, (b"BEGIN\n" + put(b"x", b"1") + b"DROP\nGET x\nDROP\n", b"OK\nQUEUED\nOK\nNONE\n" + BAD))
        check(
            one,
            (
                b"BEGIN\nINCR c\n" + put(b"t", b"text") + b"INCR t\nINCR c\nCOMMIT\n",
                b"OK\n" + b"QUEUED\n" * 4 + b"ERROR not a number\n",
            ),
        )
        check(one, (b"GET t\nGET c\nBEGIN\nCOMMIT\n", b"NONE\n" + answer(b"2") + b"OK\nCOUNT 0\n"))
        with connected(server) as third:
            check(third, (b"BEGIN\nINCR lost\n", b"OK\nQUEUED\n"))
        check(other, (b"GET lost\n", b"NONE\n"))


def test_pieces_and_many_requests(folder):
    with serving(folder) as server, connected(server) as client:
        for piece in (b"SE", b"T slow 1", b"1\nfive ", b"\nbytes", b"\nGET slo"):
            client.sendall(piece)
        check(client, (b"w\n", b"OK\n" + answer(b"five \nbytes")))
        count = 3000
        wanted = b"".join(answer(b"%d" % number) for number in range(1, count + 1))
        check(client, (b"INCR many\n" * count, wanted))


def test_clients_do_not_hold_up_each_other(folder):
    with serving(folder) as server:
        clients = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(100)]
        clients[0].sendall(b"SET held 10\nhalf")
        clients[1].sendall(b"GE")
        check(clients[2], (put(b"big", b"x" * 65536), b"OK\n"))
        clients[2].setblocking(False)
        sent = 0
        with suppress(BlockingIOError):  # answers that nobody reads fill every buffer between the two
            while sent < 40 << 20:
                sent += clients[2].send(b"GET big\n" * 500)
        for client in clients[3:]:
            client.sendall(b"INCR n\n" * 20)
        got = [client.recv(5, socket.MSG_WAITALL) for client in clients[3:]]
        assert all(each == b"VALUE" for each in got)
        with connected(server) as last:
            number = 0
            while number < 97 * 20:
                last.sendall(b"GET n\n")
                number = int(last.recv(100).split(b"\n")[1])
            assert number == 97 * 20
        for client in clients:
            client.close()


def test_what_was_answered_survives(folder):
    with serving(folder) as server, connected(server) as client:
        check(
            client,
            (
                put(b"a", b"\0\n") + put(b"b", b"x") + b"INCR n\nDEL b\nINCR n\n",
                b"OK\nOK\n" + answer(b"1") + b"OK\n" + answer(b"2"),
            ),
        )
        check(
            client, (b"BEGIN\nINCR n\nINCR m\nCOMMIT\n", b"OK\nQUEUED\nQUEUED\nCOUNT 2\n" + answer(b"3") + answer(b"1"))
        )
        check(client, (b"BEGIN\nINCR n\n", b"OK\nQUEUED\n"))
        assert server.end() == -signal.SIGKILL
    with serving(folder) as server, connected(server) as client:
        check(client, (b"KEYS\nGET a\nGET n\n", b"COUNT 3\na\nm\nn\n" + answer(b"\0\n") + answer(b"3")))
        check(client, (b"INCR m\n", answer(b"2")))
        assert server.end(signal.SIGTERM) == 0
    with serving(folder) as server, connected(server) as client:
        check(client, (b"GET m\n", answer(b"2")))


def contents(folder):
    """Path → inode and content."""
    return {each: (each.stat().st_ino, each.read_bytes()) for each in folder.rglob("*") if each.is_file()}


def is_log(before, after):
    """Return whether it is the same file, with more at its end."""
    return before[0] == after[0] and after[1].startswith(before[1])


def test_a_torn_end_is_forgotten(folder):
    with serving(folder) as server, connected(server) as client:
        check(client, (put(b"first", b"1"), b"OK\n"))
        before = contents(folder)
        check(
            client,
            (
                b"BEGIN\nINCR x\n" + put(b"y", b"y" * 100) + b"COMMIT\n",
                b"OK\nQUEUED\nQUEUED\nCOUNT 2\n" + answer(b"1") + b"OK\n",
            ),
        )
        server.end()
    after = contents(folder)
    logs = [each for each, (_, data) in after.items() if each in before and data != before[each][1]]
    if len(logs) != 1 or not is_log(before[logs[0]], after[logs[0]]):
        # It replaces whole files, perhaps: then there is no end that could be torn.
        with serving(folder) as server, connected(server) as client:
            check(client, (b"GET first\nGET x\n", answer(b"1") * 2))
        return
    log, begin, whole = logs[0], len(before[logs[0]][1]), after[logs[0]][1]
    for size in range(begin, len(whole), 7):
        log.write_bytes(whole[:size])
        with serving(folder) as server, connected(server) as client:
            check(client, (b"GET first\nKEYS\n", answer(b"1") + b"COUNT 1\nfirst\n"))
            check(client, (b"INCR later\n", answer(b"1")))
            server.end()
        with serving(folder) as server, connected(server) as client:
            check(client, (b"GET later\nDEL later\n", answer(b"1") + b"OK\n"))
