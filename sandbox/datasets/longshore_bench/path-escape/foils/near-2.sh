# Right about places, but decoded until nothing changes, and links are refused altogether.
cat > /app/files.py <<'EOF'
import os, sys, urllib.parse
root = os.path.realpath(sys.argv[1])
path = sys.stdin.readline().strip().split("?")[0].split("#")[0]
while urllib.parse.unquote(path) != path: path = urllib.parse.unquote(path)
parts = [p for p in path.split("/") if p not in ("", ".")]
if not path.startswith("/") or "\0" in path or "\\" in path or ".." in parts: print("400")
else:
    full = os.path.join(root, *parts)
    if os.path.isdir(full): full += "/index.html"
    if any(p[0] == "." for p in parts) or os.path.realpath(full) != full or not os.path.isfile(full): print("404")
    else:
        try: data = open(full, "rb").read()
        except OSError: print("404"); sys.exit()
        print("200 %d" % len(data), flush=True); sys.stdout.buffer.write(data)
EOF
