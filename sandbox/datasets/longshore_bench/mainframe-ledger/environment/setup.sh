set -e
cat > /tmp/make.py <<'EOF'
lines = [
    "H20240229",
    "A00000017Kühn, Söhne & Co    EUR0000010000{",
    "T00000042235958000000500}Rent \"March\"",
    "T00000017120000000001234NFee                 ",
    "A00000042Berg                USD0000000000N",
    "T0000001708300000000010001refund",
    "T00000099083000000000100Anobody's",
    "X what is this",
    "Z00000006",
]
lines[3] = "T00000017120000" + "0000001234N" + "Fee"
lines[2] = "T00000042235958" + "0000000500}" + 'Rent "March"'
lines[5] = "T00000017083000" + "00000100001"[:11] + "refund"
lines[6] = "T00000099083000" + "0000000100A" + "nobody's"
lines[8] = "Z" + "00000006" + "%015d" % 0
total = -12345 - 5000 + 100001 + 1001
assert total > 0
text = "%015d" % total
lines[8] = "Z00000006" + text[:-1] + "{ABCDEFGHI"[int(text[-1])]
open("/app/example.txt", "w", encoding="latin-1").write("".join(line + "\n" for line in lines))
EOF
python3 /tmp/make.py
rm /tmp/make.py
