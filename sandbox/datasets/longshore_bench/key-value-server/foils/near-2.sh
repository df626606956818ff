# Threads and a log of requests; a commit is logged line by line, and a torn end of the log is an error.
cat > /app/kv.py <<'EOF'
import os, re, signal, socket, sys, threading
folder, port = sys.argv[1:3]
values, lock = {}, threading.Lock()
path = folder + "/log"
def apply(w, v):
    if w[0] == b"SET": values[w[1]] = v; return b"OK\n"
    if w[0] == b"DEL": return b"OK\n" if values.pop(w[1], None) is not None else b"NONE\n"
    old = values.get(w[1], b"0")
    if not re.fullmatch(rb"-?\d+", old): return b"ERROR not a number\n"
    values[w[1]] = b"%d" % (int(old) + 1); return b"VALUE %d\n%s\n" % (len(values[w[1]]), values[w[1]])
if os.path.exists(path):
    f = open(path, "rb")
    for line in f:
        w = line.split(); v = f.read(int(w[2]) + 1)[:-1] if w[0] == b"SET" else b""; apply(w, v)
log = open(path, "ab", buffering=0)
def do(w, v):
    log.write(b" ".join(w) + b"\n" + (v + b"\n" if w[0] == b"SET" else b"")); return apply(w, v)
def serve(c):
    f = c.makefile("rb"); q = None
    for line in f:
        w = line.rstrip(b"\r\n").split(b" "); a = b"ERROR bad request\n"; ok = len(w) > 1 and re.fullmatch(rb"[\w.:-]{1,100}", w[1])
        if w[0] == b"SET":
            if len(w) != 3 or not w[2].isdigit() or int(w[2]) > 65536: c.sendall(a); break
            v = f.read(int(w[2]) + 1)
            if v[-1:] != b"\n": c.sendall(a); break
            v = v[:-1]
        else: v = b""
        if ok and (w[0] == b"SET" or w[0] in (b"DEL", b"INCR") and len(w) == 2):
            if q is not None: q.append((w, v)); a = b"QUEUED\n"
            else:
                with lock: a = do(w, v)
        elif ok and w[0] == b"GET" and len(w) == 2: a = b"VALUE %d\n%s\n" % (len(values[w[1]]), values[w[1]]) if w[1] in values else b"NONE\n"
        elif w[0] == b"KEYS": k = sorted(k for k in list(values) if k.startswith(b"".join(w[1:]))); a = b"COUNT %d\n" % len(k) + b"".join(x + b"\n" for x in k)
        elif w == [b"PING"]: a = b"PONG\n"
        elif w == [b"BEGIN"] and q is None: q = []; a = b"OK\n"
        elif w == [b"DROP"] and q is not None: q = None; a = b"OK\n"
        elif w == [b"COMMIT"] and q is not None:
            with lock: r = [do(*x) for x in q]
            q = None; a = b"COUNT %d\n" % len(r) + b"".join(r)
        elif w == [b"QUIT"]: c.sendall(b"BYE\n"); break
        c.sendall(a)
    c.close()
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
s = socket.socket(); s.bind(("127.0.0.1", int(port))); s.listen(100)
print("listening %d" % s.getsockname()[1], flush=True)
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
EOF
