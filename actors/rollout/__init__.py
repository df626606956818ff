"""One episode: a policy, an agent's loop or a harness, a sandbox, a grade and a reward.

It ends in one trajectory or in an InfraError.  Nothing here knows Ray, the scheduler or the buffer.  Settings, the
terminal, the observer, stages and policies are at the bottom, the agent's loop and grading above them; the episode and
the harness join all of these.
"""
