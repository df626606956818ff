cat > /app/greeter.py <<'EOF'
"""greeter.py CONFIG: one thread and a selector; signals come in as bytes on a socket."""

import os
import selectors
import signal
import socket
import sys

LONGEST = 10000


class Wrong(Exception):
    pass


def read(path):
    found = {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except (OSError, ValueError) as error:
        raise Wrong("cannot read the configuration: %s" % error) from error
    for line in lines:
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        key, value = key.strip(), value.strip()
        if not equals or key not in ("port", "greeting", "pidfile") or key in found or not value:
            raise Wrong("wrong line: %s" % line)
        found[key] = value
    if "port" not in found or "greeting" not in found:
        raise Wrong("port and greeting are required")
    port = found["port"]
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise Wrong("wrong port: %s" % port)
    return found


def listen(port):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(("127.0.0.1", int(port)))
        server.listen(128)
    except OSError as error:
        server.close()
        raise Wrong("cannot listen on port %s: %s" % (port, error)) from error
    server.setblocking(False)
    return server


def lives(path):
    try:
        with open(path) as file:
            os.kill(int(file.read()), 0)
    except PermissionError:
        return os.path.exists(path)
    except (OSError, ValueError, OverflowError):
        return False
    return True


class Client:
    def __init__(self, connection):
        self.connection, self.input, self.output, self.over = connection, b"", b"", False


class Service:
    def __init__(self, path):
        self.path, self.config = path, read(path)
        self.pidfile = self.config.get("pidfile")
        if self.pidfile and lives(self.pidfile):
            raise Wrong("%s names a process that lives" % self.pidfile)
        self.server = listen(self.config["port"])
        if self.pidfile:
            try:
                with open(self.pidfile + ".new", "w") as file:
                    file.write("%d\n" % os.getpid())
                os.replace(self.pidfile + ".new", self.pidfile)
            except OSError as error:
                raise Wrong("cannot write %s: %s" % (self.pidfile, error)) from error
        self.clients, self.ending = set(), False
        self.selector = selectors.DefaultSelector()
        self.wake, inside = socket.socketpair()
        for end in (self.wake, inside):
            end.setblocking(False)
        signal.set_wakeup_fd(inside.fileno(), warn_on_full_buffer=False)
        self.inside = inside
        for number in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        self.selector.register(self.wake, selectors.EVENT_READ)
        self.selector.register(self.server, selectors.EVENT_READ)
        self.ready()

    def ready(self):
        print("ready %d" % self.server.getsockname()[1], flush=True)

    def leave(self, code):
        if self.pidfile:
            try:
                os.unlink(self.pidfile)
            except OSError:
                pass
        os._exit(code)

    def run(self):
        while True:
            for key, events in self.selector.select():
                if key.fileobj is self.wake:
                    self.signals()
                elif key.fileobj is self.server:
                    self.accept()
                elif key.data in self.clients:
                    if events & selectors.EVENT_READ:
                        self.receive(key.data)
                    if key.data in self.clients:
                        self.send(key.data)
            if self.ending and not self.clients:
                self.leave(0)

    def signals(self):
        for number in self.wake.recv(1000):
            if number == signal.SIGHUP and not self.ending:
                self.reload()
            elif number == signal.SIGTERM:
                if self.ending:
                    self.leave(1)
                self.end()

    def reload(self):
        try:
            config = read(self.path)
            if config["port"] != self.config["port"] and int(config["port"]) != self.server.getsockname()[1]:
                server = listen(config["port"])
                self.accept()
                self.selector.unregister(self.server)
                self.server.close()
                self.server = server
                self.selector.register(server, selectors.EVENT_READ)
        except Wrong as error:
            print("reload failed: %s" % error, file=sys.stderr, flush=True)
            return
        self.config = config
        self.ready()

    def end(self):
        self.accept()
        self.ending = True
        self.selector.unregister(self.server)
        self.server.close()
        for client in list(self.clients):
            self.receive(client)
            if client in self.clients:
                self.send(client)

    def accept(self):
        """All that wait."""
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            connection.setblocking(False)
            client = Client(connection)
            self.clients.add(client)
            self.selector.register(connection, selectors.EVENT_READ, client)

    def receive(self, client):
        while not client.over:
            try:
                data = client.connection.recv(65536)
            except BlockingIOError:
                break
            except OSError:
                self.drop(client)
                return
            if not data:
                client.over, client.input = True, b""
            client.input += data
            *lines, client.input = client.input.split(b"\n")
            for line in lines:
                try:
                    line.decode()
                except UnicodeDecodeError:
                    client.over = True
                client.over = client.over or len(line) > LONGEST
                if client.over:
                    break
                client.output += self.config["greeting"].encode() + b", " + line + b"\n"
            client.over = client.over or len(client.input) > LONGEST
            if len(client.output) > 1 << 20:
                break

    def send(self, client):
        try:
            while client.output:
                client.output = client.output[client.connection.send(client.output) :]
        except BlockingIOError:
            pass
        except OSError:
            self.drop(client)
            return
        if not client.output and (client.over or (self.ending and not client.input)):
            self.drop(client)
            return
        events = selectors.EVENT_WRITE if client.output else 0
        if len(client.output) <= 1 << 20 and not client.over:
            events |= selectors.EVENT_READ
        self.selector.modify(client.connection, events, client)

    def drop(self, client):
        self.clients.discard(client)
        self.selector.unregister(client.connection)
        client.connection.close()


try:
    service = Service(sys.argv[1])
except Wrong as error:
    print("greeter.py: %s" % error, file=sys.stderr)
    sys.exit(2)
service.run()
EOF
