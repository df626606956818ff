# One client after the other, and nothing on disk until the end.
cat > /app/kv.py <<'EOF'
import os, socket, sys, re
folder, port = sys.argv[1:3]
values = {}
s = socket.socket(); s.bind(("127.0.0.1", int(port))); s.listen(100)
print("listening %d" % s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept(); f = c.makefile("rb"); q = None
    def do(w, v):
        if w[0] == b"SET": values[w[1]] = v; return b"OK\n"
        if w[0] == b"DEL": return b"OK\n" if values.pop(w[1], None) is not None else b"NONE\n"
        try: n = int(values.get(w[1], b"0")) + 1
        except ValueError: return b"ERROR not a number\n"
        values[w[1]] = b"%d" % n; return b"VALUE %d\n%d\n" % (len(values[w[1]]), n)
    for line in f:
        w = line.rstrip().split(b" "); a = b"ERROR bad request\n"
        try:
            if w[0] in (b"SET", b"DEL", b"INCR"):
                v = f.read(int(w[2]) + 1)[:-1] if w[0] == b"SET" else b""
                if q is not None: q.append((w, v)); a = b"QUEUED\n"
                else: a = do(w, v)
            elif w[0] == b"GET": a = b"VALUE %d\n%s\n" % (len(values[w[1]]), values[w[1]]) if w[1] in values else b"NONE\n"
            elif w[0] == b"KEYS":
                k = sorted(k for k in values if k.startswith(b"".join(w[1:]))); a = b"COUNT %d\n" % len(k) + b"".join(x + b"\n" for x in k)
            elif w == [b"PING"]: a = b"PONG\n"
            elif w == [b"BEGIN"]: q = []; a = b"OK\n"
            elif w == [b"DROP"]: q = None; a = b"OK\n"
            elif w == [b"COMMIT"]: r = [do(*x) for x in q]; q = None; a = b"COUNT %d\n" % len(r) + b"".join(r)
            elif w == [b"QUIT"]: c.sendall(b"BYE\n"); break
        except (IndexError, ValueError, TypeError): pass
        c.sendall(a)
    c.close()
EOF
