"""files.py ROOT < REQUEST: answer one request"""

import os
import sys
import urllib.parse


def main(root):
    path = sys.stdin.readline().strip().split("?")[0]
    path = urllib.parse.unquote(path).replace("../", "")
    full = os.path.abspath(root + "/" + path)
    if not full.startswith(root):
        print("400 outside of " + root)
        return
    if os.path.isdir(full):
        full = full + "/index.html"
    try:
        data = open(full, "rb").read()
        print("200 %d" % len(data))
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
    except OSError as error:
        print("404 %s" % error)


main(sys.argv[1])
