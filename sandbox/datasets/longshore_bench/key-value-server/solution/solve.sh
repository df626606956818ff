cat > /app/kv.py <<'EOF'
"""kv.py FOLDER PORT: a key-value server with a log that is read again at the start.

A record of the log is a batch of changes: length and CRC-32 (4 bytes each), then the changes.
"""

import os
import re
import signal
import socket
import struct
import sys
import threading
import zlib

KEY = re.compile(rb"[A-Za-z0-9._:-]{1,100}")
NUMBER = re.compile(rb"-?[0-9]+")
CHANGES = (b"SET", b"DEL", b"INCR")


class Close(Exception):
    pass


class NoNumber(Exception):
    pass


class Store:
    def __init__(self, folder):
        self.values, self.lock = {}, threading.Lock()
        path = os.path.join(folder, "log")
        good = 0
        if os.path.exists(path):
            with open(path, "rb") as file:
                data = file.read()
            while good + 8 <= len(data):
                size, check = struct.unpack(">II", data[good : good + 8])
                body = data[good + 8 : good + 8 + size]
                if len(body) < size or zlib.crc32(body) != check:
                    break
                self.replay(body)
                good += 8 + size
            os.truncate(path, good)
        self.log = open(path, "ab", buffering=0)

    def replay(self, body):
        at = 0
        while at < len(body):
            kind, name, size = struct.unpack(">cBI", body[at : at + 6])
            key = body[at + 6 : at + 6 + name]
            at += 6 + name + size
            if kind == b"S":
                self.values[key] = body[at - size : at]
            else:
                self.values.pop(key, None)

    def change(self, batch):
        """The answers of the changes, which are done together and are on disk then.  Raises NoNumber."""
        with self.lock:
            new, answers, record = {}, [], b""
            for command, key, value in batch:
                old = new[key] if key in new else self.values.get(key)
                if command == b"SET":
                    new[key] = value
                    answers.append(b"OK\n")
                elif command == b"DEL":
                    new[key] = None
                    answers.append(b"NONE\n" if old is None else b"OK\n")
                else:
                    if old is not None and not NUMBER.fullmatch(old):
                        raise NoNumber
                    new[key] = str(int(old or 0) + 1).encode()
                    answers.append(b"VALUE %d\n%s\n" % (len(new[key]), new[key]))
            for key, value in new.items():
                kind = b"D" if value is None else b"S"
                record += struct.pack(">cBI", kind, len(key), len(value or b"")) + key + (value or b"")
            if record:
                self.log.write(struct.pack(">II", len(record), zlib.crc32(record)) + record)
            for key, value in new.items():
                if value is None:
                    self.values.pop(key, None)
                else:
                    self.values[key] = value
            return answers

    def get(self, key):
        with self.lock:
            return self.values.get(key)

    def keys(self, prefix):
        with self.lock:
            return sorted(key for key in self.values if key.startswith(prefix))


class Client:
    def __init__(self, connection, store):
        self.connection, self.store, self.queue = connection, store, None
        self.input = connection.makefile("rb")

    def run(self):
        try:
            while True:
                line = self.input.readline(1002)
                if not line.endswith(b"\n"):
                    if len(line) > 1000:
                        self.connection.sendall(b"ERROR bad request\n")
                    return
                if len(line.rstrip(b"\r\n")) > 1000:
                    raise Close
                self.connection.sendall(self.answer(line[:-1].removesuffix(b"\r").split(b" ")))
        except Close as error:
            try:
                self.connection.sendall(error.args[0] if error.args else b"ERROR bad request\n")
            except OSError:
                pass
        except OSError:
            pass
        finally:
            try:
                self.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self.connection.close()

    def value(self, words):
        if len(words) != 3 or not re.fullmatch(b"[0-9]{1,5}", words[2]) or int(words[2]) > 65536:
            raise Close
        size = int(words[2])
        data = self.input.read(size + 1)
        if len(data) <= size or data[size:] != b"\n":
            raise Close
        return data[:size]

    def answer(self, words):
        command, inside = words[0], self.queue is not None
        if command in CHANGES:
            value = self.value(words) if command == b"SET" else b""
            if len(words) != (3 if command == b"SET" else 2) or not KEY.fullmatch(words[1]):
                return b"ERROR bad request\n"
            change = (command, words[1], value)
            if inside:
                self.queue.append(change)
                return b"QUEUED\n"
            return self.done([change])[0]
        if command == b"GET" and len(words) == 2 and KEY.fullmatch(words[1]):
            found = self.store.get(words[1])
            return b"NONE\n" if found is None else b"VALUE %d\n%s\n" % (len(found), found)
        if command == b"KEYS" and len(words) <= 2 and (len(words) == 1 or KEY.fullmatch(words[1])):
            found = self.store.keys(words[1] if len(words) == 2 else b"")
            return b"COUNT %d\n" % len(found) + b"".join(key + b"\n" for key in found)
        if len(words) > 1:
            return b"ERROR bad request\n"
        if command == b"PING":
            return b"PONG\n"
        if command == b"QUIT":
            raise Close(b"BYE\n")
        if command == b"BEGIN" and not inside:
            self.queue = []
            return b"OK\n"
        if command == b"DROP" and inside:
            self.queue = None
            return b"OK\n"
        if command == b"COMMIT" and inside:
            queue, self.queue = self.queue, None
            answers = self.done(queue)
            if answers[:1] == [b"ERROR not a number\n"]:
                return answers[0]
            return b"COUNT %d\n" % len(answers) + b"".join(answers)
        return b"ERROR bad request\n"

    def done(self, batch):
        try:
            return self.store.change(batch)
        except NoNumber:
            return [b"ERROR not a number\n"]


def main(folder, port):
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    store = Store(folder)
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", int(port)))
    server.listen(256)
    print("listening %d" % server.getsockname()[1], flush=True)
    threading.stack_size(256 * 1024)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=Client(connection, store).run, daemon=True).start()


main(*sys.argv[1:3])
EOF
