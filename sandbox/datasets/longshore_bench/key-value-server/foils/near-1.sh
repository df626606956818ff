# A thread for each client, and nothing on disk; a transaction is done one change after the other.
cat > /app/kv.py <<'EOF'
import os, re, signal, socket, sys, threading
values, lock = {}, threading.Lock()
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
def do(w, v):
    with lock:
        if w[0] == b"SET": values[w[1]] = v; return b"OK\n"
        if w[0] == b"DEL": return b"OK\n" if values.pop(w[1], None) is not None else b"NONE\n"
        old = values.get(w[1], b"0")
        if not re.fullmatch(rb"-?\d+", old): return b"ERROR not a number\n"
        values[w[1]] = b"%d" % (int(old) + 1); return b"VALUE %d\n%s\n" % (len(values[w[1]]), values[w[1]])
def serve(c):
    f = c.makefile("rb"); q = None
    while True:
        line = f.readline(1002)
        if not line.endswith(b"\n"):
            if len(line) > 1000: c.sendall(b"ERROR bad request\n")
            break
        w = line.rstrip(b"\r\n").split(b" "); a = b"ERROR bad request\n"; v = b""
        ok = len(w) > 1 and re.fullmatch(rb"[\w.:-]{1,100}", w[1])
        if w[0] == b"SET":
            if len(w) != 3 or not w[2].isdigit() or int(w[2]) > 65536: c.sendall(a); break
            v = f.read(int(w[2]) + 1)
            if v[int(w[2]):] != b"\n": c.sendall(a); break
            v = v[:-1]
        if ok and (w[0] == b"SET" or w[0] in (b"DEL", b"INCR") and len(w) == 2):
            if q is None: a = do(w, v)
            else: q.append((w, v)); a = b"QUEUED\n"
        elif ok and w[0] == b"GET" and len(w) == 2: a = b"VALUE %d\n%s\n" % (len(values[w[1]]), values[w[1]]) if w[1] in values else b"NONE\n"
        elif w[0] == b"KEYS" and len(w) < 3:
            k = sorted(k for k in list(values) if k.startswith(b"".join(w[1:]))); a = b"COUNT %d\n" % len(k) + b"".join(x + b"\n" for x in k)
        elif w == [b"PING"]: a = b"PONG\n"
        elif w == [b"BEGIN"] and q is None: q = []; a = b"OK\n"
        elif w == [b"DROP"] and q is not None: q = None; a = b"OK\n"
        elif w == [b"COMMIT"] and q is not None: r = [do(*x) for x in q]; q = None; a = b"COUNT %d\n" % len(r) + b"".join(r)
        elif w == [b"QUIT"]: c.sendall(b"BYE\n"); break
        c.sendall(a)
    c.shutdown(socket.SHUT_RDWR); c.close()
s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[2]))); s.listen(200)
print("listening %d" % s.getsockname()[1], flush=True)
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
EOF
