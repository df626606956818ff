# With Luhn and quotes, but word boundaries are Python's, and only whole runs of digits are looked at.
cat > /app/redact.py <<'EOF'
import re, sys
def luhn(d): return sum(sum(divmod(int(c) * (1 + i % 2), 10)) for i, c in enumerate(reversed(d))) % 10 == 0
def card(f):
    d = re.sub("[ -]", "", f[0])
    return "[CARD %s]" % d[-4:] if 13 <= len(d) <= 19 and luhn(d) else f[0]
sys.stdin.reconfigure(errors="surrogateescape", newline=""); sys.stdout.reconfigure(errors="surrogateescape", newline="")
for line in sys.stdin:
    line = re.sub(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", "[KEY]", line)
    line = re.sub(r"(?i)\b(bearer[ \t]+)[A-Za-z0-9._~+/=-]+", r"\1[TOKEN]", line)
    line = re.sub(r'(?i)((?:password|passwd|secret|api_key)[\w-]*"?[ \t]*[=:][ \t]*)(?:"((?:\\.|[^"\\])+)"|([^\s,;&"]+))', lambda f: f[1] + ('"[SECRET]"' if f[2] else "[SECRET]"), line)
    line = re.sub(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/@\s:]+:[^/@\s]+@", r"\1[LOGIN]@", line)
    line = re.sub(r"(?<![\w-])\d(?:[ -]?\d)+(?![\w-])", card, line)
    sys.stdout.write(line)
EOF
