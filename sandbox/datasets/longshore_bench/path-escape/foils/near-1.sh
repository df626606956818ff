# realpath and a prefix: the neighbour whose name begins alike is still inside, and hidden files are served.
cat > /app/files.py <<'EOF'
import os, sys, urllib.parse
root = os.path.realpath(sys.argv[1])
path = urllib.parse.unquote(sys.stdin.readline().strip().split("?")[0].split("#")[0])
if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
    print("400")
else:
    full = os.path.realpath(root + "/" + path)
    if os.path.isdir(full): full += "/index.html"
    if not full.startswith(root) or not os.path.isfile(full): print("404")
    else:
        data = open(full, "rb").read()
        print("200 %d" % len(data), flush=True); sys.stdout.buffer.write(data)
EOF
