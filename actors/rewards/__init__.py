"""Rewards: from what an episode came to, to a number with its parts.

:mod:`.played` is what a reward sees of an episode; :mod:`.outcome` has the formulas over its tests, :mod:`.named` finds
them by name; :mod:`.process`, :mod:`.judge` and :mod:`.shaping` add to that, for the episode or turn by turn;
:mod:`.rewarding` puts together what a run's configuration asks for.  An infrastructure failure never comes here: it has
no reward.
"""
