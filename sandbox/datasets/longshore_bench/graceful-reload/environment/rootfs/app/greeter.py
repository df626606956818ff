"""greeter.py CONFIG"""

import os
import signal
import socket
import sys


def read(path):
    return dict(line.strip().split(" = ") for line in open(path))


config = read(sys.argv[1])


def reload(*_):
    config.update(read(sys.argv[1]))


signal.signal(signal.SIGHUP, reload)
server = socket.socket()
server.bind(("127.0.0.1", int(config["port"])))
print("ready", config["port"], flush=True)
server.listen()
if "pidfile" in config:
    open(config["pidfile"], "w").write(str(os.getpid()))
while True:
    client, _ = server.accept()
    for line in client.makefile():
        client.send((config["greeting"] + ", " + line).encode())
