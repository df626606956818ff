"""Agents: a task in, messages and actions out.

An agent knows what an action looks like in a reply (:mod:`~actors.agents.agent`, one file for each form); a chat format
knows what messages look like as tokens (:mod:`~actors.tokens.chat_format`).  Neither keeps state of an episode.
"""
