"""HTML files that keep what the monitor shows, for readers who have neither the run's machine nor a network.

:mod:`.run_report` writes a run's report at its end and for ``longshore report``; :mod:`.standalone_page` renders a
single trajectory or group for the monitor's download.  Both embed text of sandboxes as data only.
"""
