"""Shows a run to people: a page, a terminal UI and a report.

All of it reads the run directory and nothing else.  ``tail`` turns files into events and cursors, ``rules`` turns
events into ``state``, ``view`` turns state into what readers get; ``store`` joins them.  ``archive`` has everything
that was acknowledged, as lists and one by one.  ``follow`` is both for many readers at once, in the ``shapes`` of the
API; ``web`` and ``app`` serve it, ``progress`` and ``report`` show it.  Nothing here is ever waited for by a run, and
nothing that a sandbox printed is more than text.
"""
