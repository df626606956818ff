# Shifts and numbers; neither sorted nor trimmed, and hours have two digits.
cat > /app/srt.py <<'EOF'
import re, sys
shift = int(sys.argv[sys.argv.index("--shift") + 1]) if "--shift" in sys.argv else 0
a, b = map(int, sys.argv[sys.argv.index("--stretch") + 1].split("/")) if "--stretch" in sys.argv else (1, 1)
def t(f):
    h, m, s, ms = (int(x or 0) for x in f.groups())
    v = max(0, round((((h * 60 + m) * 60 + s) * 1000 + ms) * a / b) + shift)
    return "%02d:%02d:%02d,%03d" % (v // 3600000, v // 60000 % 60, v // 1000 % 60, v % 1000)
text = sys.stdin.read().lstrip("\ufeff")
n = 0
for block in re.split(r"\n\s*\n", text.strip()):
    lines = block.split("\n")
    n += 1
    if "-->" not in lines[1]: print("line 2: no times", file=sys.stderr); sys.exit(1)
    print(n); print(re.sub(r"(\d+):(\d+):(\d+)(?:[,.](\d+))?", t, lines[1])); print("\n".join(lines[2:]) + "\n")
EOF
