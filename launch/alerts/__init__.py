"""What a person should hear while a run goes on: something is wrong, or could be better, and the knob to turn.

:mod:`.signs` collects what events and metrics show of late, :mod:`.rules` says what of it is worth a word, and
:mod:`.watch` follows a run and tells each once, and when it is over.  Three more are said by those who see them:
parity (:mod:`launch.training.logprob_parity`), infrastructure that fails long episodes (:mod:`actors.scheduler.failure_rates`), and exports.
"""
