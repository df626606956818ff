"""What a machine has to be for a run: one list of checks, for ``python -m launch.doctor``, for a run's preflight, and
for each machine of a cluster.

Each check looks (blocking, in a thread of its own, with a deadline) and judges what it saw (pure: facts in, findings
out).  What does not answer in time is a finding, never a hang.
"""
