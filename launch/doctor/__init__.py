"""Checks whether a machine can run a recipe: for ``longshore doctor``, the preflight of a run, and each machine of a
cluster.

Each check reads facts (blocking, in its own thread, with a deadline) and checks them (pure: facts in, findings out).  A
check that does not answer in time is a finding, never a hang.
"""
