# What selfcheck shows, and no more.
cd /app
sed -i -e 's|"%d:%02d" % (minutes / 60|"%02d:%02d" % (minutes // 60|' -e 's/def merge(spans, merged=\[\]):/def merge(spans):/' \
    -e 's/    spans.sort()/    merged, spans = [], sorted(spans)/' -e 's/begin < merged/begin <= merged/' slots.py
