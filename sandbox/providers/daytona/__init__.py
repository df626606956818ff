"""Daytona's sandboxes as a provider (:mod:`sandbox.providers.interface`): behind an optional dependency, ``longshore[daytona]``.

No PID 1 of ours is in them, and no kit: a program in bash (``shell_driver.sh``), which comes with each call, keeps shells, moves
files and ends what an agent has started; the image needs bash 5, coreutils, grep, tar and util-linux.  What an agent
leaves is graded in its own sandbox, by the image's programs, once everything else that it has started is dead; a task
that asks for more distance, for services beside it or for capabilities is refused.

Nothing is left behind by whoever dies: a sandbox is ephemeral, stops by itself when nobody has renewed it for a while,
and has a longest life.

``sdk.py`` what we use of Daytona's SDK, typed; ``machine.py`` one sandbox's calls and their errors; ``shells.py``,
``files.py``, ``tools.py``, ``grade.py`` what is done with them; ``box.py`` a sandbox; ``pool.py`` the provider.
"""
