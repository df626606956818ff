# The functions on spans are right; parsing is as it was, and so are the exit codes.
cd /app
sed -i -e 's|"%d:%02d" % (minutes / 60|"%02d:%02d" % (minutes // 60|' -e 's/def merge(spans, merged=\[\]):/def merge(spans):/' \
    -e 's/    spans.sort()/    merged, spans = [], sorted(spans)/' -e 's/begin < merged/begin <= merged/' \
    -e 's/(merged\[-1\]\[0\], end)/(merged[-1][0], max(end, merged[-1][1]))/' -e 's/> least/>= max(least, 1)/' \
    -e 's/        if begin - at/        begin = min(begin, day[1])\n        if begin - at/' -e 's/        at = end/        at = max(at, end)/' slots.py
