"""Rewards: from the result of an episode to a number with its parts.

:mod:`~actors.rewards.episode_result` is a reward's view of an episode; :mod:`~actors.rewards.outcome` has the
formulas over its tests and :mod:`~actors.rewards.registry` finds them by name; process rules, judge and shaping add to
that, for the episode or turn by turn; :mod:`~actors.rewards.composite` puts together what a run's configuration asks
for.  An infrastructure failure never comes here: it has no reward.
"""
