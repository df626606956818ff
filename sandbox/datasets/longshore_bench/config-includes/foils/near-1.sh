# Reads and resolves well, but lines do not go on, sections leak into and out of includes, and errors are tracebacks.
cat > /app/conf.py <<'EOF'
import os, re, sys
settings, section = {}, ""
def load(path):
    global section
    for line in open(path):
        line = line.strip()
        if not line or line[0] in "#;": continue
        if line.startswith("["): section = line[1:-1]
        elif line.startswith("include "): load(os.path.join(os.path.dirname(path), line[8:].strip()))
        else:
            key, more, value = re.match(r"([\w-]+)\s*(\+?)=(.*)", line).groups()
            name = section + "." + key if section else key
            value = value.strip()
            if value.startswith('"'):
                value = re.sub(r"\\(.)", lambda f: {"n": "\n", "t": "\t"}.get(f[1], f[1]), re.match(r'"((?:[^"\\]|\\.)*)"', value)[1])
            else: value = re.split(r"\s#", value)[0].strip()
            if more and name in settings: value = settings[name] + "," + value
            settings[name] = value
def get(name):
    s = name.rpartition(".")[0]
    def one(f):
        if f[1] is None: return "${"
        if f[1].startswith("ENV:"): return os.environ[f[1][4:]]
        return get(s + "." + f[1] if s + "." + f[1] in settings else f[1])
    return re.sub(r"\$\$\{|\$\{([^}]*)\}", one, settings[name])
load(sys.argv[1])
if sys.argv[2:]: print(get(sys.argv[2]))
else:
    for name in sorted(settings):
        print(name + "=" + get(name).replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t"))
EOF
