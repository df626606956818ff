"""The life of one sandbox: the connection to its PID 1, shells, terminals and files, and the session that owns them.

Nothing waits for the agent without a deadline.
"""
