"""Alerts of a running run: something is wrong or could be better, and which key to change.

:mod:`.signals` collects recent events and metrics, :mod:`.rules` derives alerts from them, and :mod:`.alert_watch`
follows a run and emits an event when an alert is raised and when it is resolved.

Other modules raise alerts too; docs/steering.md lists all.
"""
