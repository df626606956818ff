"""A few of the things that slots.py is to do."""

import slots

for what, got, wanted in [
    ("format", slots.format_time(545), "09:05"),
    ("merge", slots.merge([(600, 660), (540, 600)]), [(540, 660)]),
    ("merge again", slots.merge([(60, 90)]), [(60, 90)]),
    ("free", slots.free([(540, 600)]), [(480, 540), (600, 1080)]),
]:
    print("ok  " if got == wanted else "BAD ", what, got)
