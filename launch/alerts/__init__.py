"""Alerts of a running run: something is wrong or could be better, and which key to change.

:mod:`.signals` collects recent events and metrics, :mod:`.rules` derives alerts from them, and :mod:`.alert_watch`
follows a run and emits an event when an alert is raised and when it is resolved.

Other rooms raise three alerts: logprob parity (:mod:`launch.training.logprob_parity`), infrastructure failures of long
episodes (:mod:`actors.scheduler.failure_rates`), and exporters.
"""
