# The configuration is checked, and ports change; at the end nobody is waited for, and the pidfile is believed.
cat > /app/greeter.py <<'EOF'
import os, signal, socket, sys, threading
class Wrong(Exception): pass
def read():
    c = {}
    for line in open(sys.argv[1]).read().split("\n"):
        if line.strip() and not line.strip().startswith("#"):
            k, e, v = line.partition("="); k = k.strip()
            if not e or k in c or k not in ("port", "greeting", "pidfile") or not v.strip(): raise Wrong(line)
            c[k] = v.strip()
    if "port" not in c or "greeting" not in c or not c["port"].isdigit() or int(c["port"]) > 65535: raise Wrong("port or greeting")
    return c
def listen(p):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try: s.bind(("127.0.0.1", int(p)))
    except OSError as e: raise Wrong(str(e))
    s.listen(100); return s
def serve(c):
    try:
        f = c.makefile("rb")
        while True:
            line = f.readline(10001)
            if not line.endswith(b"\n"): break
            line.decode(); c.sendall((config["greeting"] + ", ").encode() + line)
    except (OSError, ValueError): pass
    c.close()
def loop(s):
    while True:
        try: c, _ = s.accept()
        except OSError: return
        threading.Thread(target=serve, args=(c,), daemon=True).start()
try: config = read(); s = listen(config["port"])
except (Wrong, OSError, ValueError) as e: print(e, file=sys.stderr); sys.exit(2)
if "pidfile" in config: open(config["pidfile"], "w").write("%d\n" % os.getpid())
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP, signal.SIGTERM])
threading.Thread(target=loop, args=(s,), daemon=True).start()
print("ready %d" % s.getsockname()[1], flush=True)
while True:
    if signal.sigwait([signal.SIGHUP, signal.SIGTERM]) == signal.SIGTERM:
        if "pidfile" in config: os.unlink(config["pidfile"])
        os._exit(0)
    try:
        new = read()
        if new["port"] != config["port"]:
            t = listen(new["port"]); s.shutdown(socket.SHUT_RDWR); s.close(); s = t
            threading.Thread(target=loop, args=(s,), daemon=True).start()
        config = new; print("ready %d" % s.getsockname()[1], flush=True)
    except (Wrong, OSError, ValueError) as e: print("reload failed", e, file=sys.stderr, flush=True)
EOF
