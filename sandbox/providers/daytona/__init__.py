"""Daytona's sandboxes as a provider (:mod:`sandbox.providers.interface`), with the optional dependency
``longshore[daytona]``.

They have neither longshore's PID 1 nor its toolchain: a bash script (``shell_driver.sh``), sent with each call, keeps
shells, moves files and ends what an agent has started; the image needs bash 5, coreutils, grep, tar and util-linux.
Grading runs in the agent's own sandbox with the image's programs, once every process of the agent is dead. A task that
requires stronger isolation, services or another user is refused.

Nothing stays behind when a client dies: a sandbox is ephemeral, stops when it has not been renewed for a while, and has
a maximum life.

A harness's program is uploaded unless the image has it, and reaches the policy through a relay in its sandbox.

Layers, from below: sdk (the used part of Daytona's SDK, typed); handle (one sandbox's calls and their errors); shell,
files; tools, grading, relay, programs; sandbox; provider.
"""
