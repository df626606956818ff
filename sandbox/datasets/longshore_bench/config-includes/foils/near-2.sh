# Lines, includes and errors of files are right; references are resolved while reading, quotes are replaced one by one.
cat > /app/conf.py <<'EOF'
import os, re, sys
settings = {}
def die(code, text):
    print(text, file=sys.stderr); sys.exit(code)
def load(path, above, where):
    section = ""
    try: text = open(path).read()
    except OSError: die(2, where + " cannot be read")
    number = 0
    lines = text.split("\n")
    while number < len(lines):
        begin, line = number + 1, lines[number]
        while line.endswith("\\") and number + 1 < len(lines):
            number += 1; line = line[:-1] + lines[number].lstrip()
        number += 1
        line = line.strip(); here = "%s:%d:" % (os.path.basename(path), begin)
        if not line or line[0] in "#;": continue
        head = re.fullmatch(r"\[([\w-]*)\]", line); inc = re.fullmatch(r"include\s+(.*)", line); s = re.fullmatch(r"([\w-]+)\s*(\+?)=(.*)", line)
        if head: section = head[1]
        elif inc:
            target = os.path.join(os.path.dirname(path), inc[1])
            if os.path.realpath(target) in above: die(3, here)
            load(target, above + [os.path.realpath(target)], here)
        elif s:
            name = section + "." + s[1] if section else s[1]; value = s[3].strip()
            if value.startswith('"'): value = value.split(" #")[0].strip('"').replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
            else: value = value.split(" #")[0].strip()
            value = re.sub(r"\$\{(?:ENV:)?([^}]*)\}", lambda f: settings.get(section + "." + f[1], settings.get(f[1], os.environ.get(f[1], ""))), value)
            settings[name] = settings[name] + "," + value if s[2] and name in settings else value
        else: die(2, here)
load(sys.argv[1], [os.path.realpath(sys.argv[1])], os.path.basename(sys.argv[1]) + ":0:")
if sys.argv[2:]:
    if sys.argv[2] not in settings: die(5, sys.argv[2])
    print(settings[sys.argv[2]])
else:
    for name in sorted(settings): print(name + "=" + settings[name].replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t"))
EOF
