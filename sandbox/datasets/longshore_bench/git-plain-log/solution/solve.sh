cat > /app/glog.py <<'EOF'
import hashlib
import heapq
import os
import re
import sys
import time
import zlib


class Nowhere(Exception):
    pass


class Damaged(Exception):
    pass


class Repository:
    def __init__(self, folder):
        self.git = os.path.join(folder, ".git")
        self.known = {}
        self.refs = self.read_refs()

    def get(self, name):
        """Kind and body of an object."""
        if name not in self.known:
            try:
                with open(os.path.join(self.git, "objects", name[:2], name[2:]), "rb") as file:
                    whole = zlib.decompress(file.read())
            except (OSError, zlib.error) as error:
                raise Damaged(name) from error
            if hashlib.sha1(whole).hexdigest() != name:
                raise Damaged(name)
            head, _, body = whole.partition(b"\0")
            self.known[name] = (head.split(b" ")[0].decode(), body)
        return self.known[name]

    def read_refs(self):
        refs = {}
        packed = os.path.join(self.git, "packed-refs")
        if os.path.exists(packed):
            with open(packed, encoding="utf-8") as file:
                for line in file:
                    if line[0] not in "#^" and line.strip():
                        name, _, ref = line.strip().partition(" ")
                        refs[ref] = name
        for folder, _, names in os.walk(os.path.join(self.git, "refs")):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    refs[os.path.relpath(path, self.git)] = file.read().strip()
        return refs

    def head(self):
        """The branch's ref, or nothing, and the hash, or nothing."""
        with open(os.path.join(self.git, "HEAD"), encoding="utf-8") as file:
            text = file.read().strip()
        if text.startswith("ref: "):
            ref = text[5:].strip()
            return ref, self.refs.get(ref)
        return None, text

    def peeled(self, name):
        """The commit that it leads to; None where that is another thing."""
        kind, body = self.get(name)
        while kind == "tag":
            name = body.split(b"\n")[0].split(b" ")[1].decode()
            kind, body = self.get(name)
        return name if kind == "commit" else None

    def commit(self, name):
        kind, body = self.get(name)
        head, _, message = body.partition(b"\n\n")
        fields = {"parent": []}
        for line in head.split(b"\n"):
            key, _, value = line.partition(b" ")
            if key == b"parent":
                fields["parent"].append(value.decode())
            elif key and key.decode("ascii", "replace") not in fields:
                fields[key.decode("ascii", "replace")] = value
        fields["message"] = message
        return fields

    def all_objects(self):
        for folder in os.listdir(os.path.join(self.git, "objects")):
            if re.fullmatch("[0-9a-f]{2}", folder):
                for name in os.listdir(os.path.join(self.git, "objects", folder)):
                    yield folder + name

    def named(self, text):
        if text == "HEAD":
            found = self.head()[1]
        else:
            found = next((self.refs[ref] for ref in (text, "refs/tags/" + text, "refs/heads/" + text)
                          if ref.startswith("refs/") and ref in self.refs), None)
        if found is None and re.fullmatch("[0-9a-f]{4,40}", text):
            fit = [name for name in self.all_objects() if name.startswith(text) and self.get(name)[0] in ("commit", "tag")]
            found = fit[0] if len(fit) == 1 else None
        if found is None:
            raise Nowhere(text)
        return found

    def revision(self, text):
        base, steps = re.fullmatch(r"(.*?)((?:\^[0-9]*|~[0-9]*)*)", text, re.DOTALL).groups()
        name = self.peeled(self.named(base))
        if name is None:
            raise Nowhere(text)
        for how, count in re.findall(r"([\^~])([0-9]*)", steps):
            count = int(count) if count else 1
            for step in [count] if how == "^" else [1] * count:
                parents = self.commit(name)["parent"]
                if step > len(parents):
                    raise Nowhere(text)
                name = parents[step - 1] if step else name
        return name


def when(value):
    """Seconds and offset of an author's or a committer's line."""
    seconds, offset = value.split(b" ")[-2:]
    return int(seconds), offset.decode()


def shown(fields, encoding):
    name = fields["author"].rpartition(b" <")[0].decode(encoding, "replace")
    seconds, offset = when(fields["author"])
    shift = (int(offset[1:3]) * 60 + int(offset[3:5])) * 60 * (-1 if offset[0] == "-" else 1)
    stamp = time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds + shift))
    lines = []
    for line in fields["message"].decode(encoding, "replace").split("\n"):
        if line.strip():
            lines.append(line)
        elif lines:
            break
    return "%s %s %s: %s" % (stamp, offset, name, " ".join(lines))


def decorations(repo):
    found = {}
    ref, head = repo.head()
    if head:
        text = "HEAD -> " + ref[len("refs/heads/"):] if ref else "HEAD"
        found.setdefault(repo.peeled(head), []).append(text)
    for start, before in (("refs/heads/", ""), ("refs/tags/", "tag: ")):
        for each in sorted((each for each in repo.refs if each.startswith(start)), key=str.encode):
            commit = repo.peeled(repo.refs[each])
            if commit and each != ref:
                found.setdefault(commit, []).append(before + each[len(start):])
    return found


def main(folder, revision="HEAD"):
    repo = Repository(folder)
    start = repo.revision(revision)
    commits, waiting = {}, [start]
    while waiting:
        name = waiting.pop()
        if name not in commits:
            commits[name] = repo.commit(name)
            waiting += commits[name]["parent"]
    children = dict.fromkeys(commits, 0)
    for fields in commits.values():
        for parent in set(fields["parent"]):
            children[parent] += 1
    refs, out = decorations(repo), []
    ready = [(-when(commits[start]["committer"])[0], start)]
    while ready:
        _, name = heapq.heappop(ready)
        fields = commits[name]
        encoding = fields.get("encoding", b"utf-8").decode()
        line = name[:8] + " " + shown(fields, encoding)
        out.append(line + (" (%s)" % ", ".join(refs[name]) if name in refs else "") + "\n")
        for parent in set(fields["parent"]):
            children[parent] -= 1
            if not children[parent]:
                heapq.heappush(ready, (-when(commits[parent]["committer"])[0], parent))
    sys.stdout.buffer.write("".join(out).encode(errors="replace"))


try:
    main(*sys.argv[1:3])
except Nowhere as error:
    print("glog.py: %s leads nowhere" % error, file=sys.stderr)
    sys.exit(3)
except Damaged as error:
    print("glog.py: object %s is missing or damaged" % error, file=sys.stderr)
    sys.exit(4)
EOF
