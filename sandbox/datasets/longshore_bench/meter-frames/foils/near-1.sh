# Right for whole recordings; a frame whose checksum is wrong is skipped as a whole, and skips are not told.
cd /app
sed -i -e 's/value = value << 7 | byte & 127/value |= (byte \& 127) << shift; shift += 7/' -e 's/^    value = 0$/    value = shift = 0/' \
    -e 's/localtime/gmtime/' -e 's/"<HII"/"<HIi"/' -e 's|value / 1000)$|"%.3f" % (value / 1000))|' -e 's/">H"/"<H"/' -e 's/"<I", data/">I", data/' \
    -e 's/value = change >> 1/value += change >> 1 if change % 2 == 0 else -(change + 1 >> 1)/' -e 's/print("?", kind, len(body))/print("? %02x %d" % (kind, len(body)))/' \
    -e 's/"%.3f" % ("%.3f" % (value \/ 1000))/"%.3f" % (value \/ 1000)/' decode.py
