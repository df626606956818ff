cat > /app/files.py <<'EOF'
"""files.py ROOT < REQUEST: answer one request"""

import os
import re
import stat
import sys


class Bad(Exception):
    pass


class Missing(Exception):
    pass


def parts_of(request):
    path = re.split(b"[?#]", request, maxsplit=1)[0]
    if re.search(b"%(?![0-9A-Fa-f]{2})", path):
        raise Bad
    decoded = re.sub(b"%(..)", lambda found: bytes([int(found[1], 16)]), path)
    try:
        path.decode()
        text = decoded.decode()
    except UnicodeDecodeError:
        raise Bad from None
    if not path.startswith(b"/") or "\0" in text or "\\" in text:
        raise Bad
    parts = [each for each in text.split("/") if each not in ("", ".")]
    if ".." in parts:
        raise Bad
    if any(each.startswith(".") for each in parts):
        raise Missing
    return parts


def read(root, parts):
    root = os.path.realpath(root)
    full = os.path.realpath(os.path.join(root, *parts))
    if os.path.isdir(full):
        full = os.path.realpath(os.path.join(full, "index.html"))
    if os.path.commonpath([root, full]) != root:
        raise Missing
    inside = os.path.relpath(full, root)
    if any(each.startswith(".") for each in inside.split(os.sep)):
        raise Missing
    descriptor = os.open(full, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Missing
        return file.read()


def main(root):
    request = sys.stdin.buffer.readline().rstrip(b"\r\n")
    try:
        data = read(root, parts_of(request))
    except Bad:
        answer = b"400\n"
    except (Missing, OSError, ValueError):
        answer = b"404\n"
    else:
        answer = b"200 %d\n" % len(data) + data
    sys.stdout.buffer.write(answer)


main(sys.argv[1])
EOF
