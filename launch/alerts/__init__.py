"""What a person should hear while a run goes on: something is wrong, or could be better, and the key to change.

:mod:`.signals` collects what events and metrics show of late, :mod:`.rules` decides what is worth an alert, and
:mod:`.alert_watch` follows a run and emits each alert once, and once more when it is resolved.

Three alerts come from elsewhere: parity (:mod:`launch.training.logprob_parity`), infrastructure that fails long
episodes (:mod:`actors.scheduler.failure_rates`), and exports.
"""
