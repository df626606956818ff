"""Agents: a prompt in, an action out.

An agent knows a chat format and what an action looks like in it.  It never renders history again: what was sampled
stays as it was sampled, and each turn only adds the ids of what is new.
"""
