# Threads; a reload that checks nothing, and an end that drops whoever is there.
cat > /app/greeter.py <<'EOF'
import os, signal, socket, sys, threading
def read():
    c = {}
    for line in open(sys.argv[1]):
        if line.strip() and line[0] != "#":
            k, _, v = line.partition("="); c[k.strip()] = v.strip()
    return c
config = read()
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try: s.bind(("127.0.0.1", int(config["port"])))
except (OSError, KeyError, ValueError) as e: print(e, file=sys.stderr); sys.exit(2)
s.listen(100)
if "pidfile" in config: open(config["pidfile"], "w").write("%d\n" % os.getpid())
def hup(*_):
    try: config.update(read())
    except Exception as e: print("reload failed", e, file=sys.stderr); return
    print("ready %d" % s.getsockname()[1], flush=True)
def term(*_):
    if "pidfile" in config: os.unlink(config["pidfile"])
    os._exit(0)
signal.signal(signal.SIGHUP, hup); signal.signal(signal.SIGTERM, term)
print("ready %d" % s.getsockname()[1], flush=True)
def serve(c):
    for line in c.makefile("rb"): c.sendall((config["greeting"] + ", ").encode() + line)
    c.close()
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
EOF
