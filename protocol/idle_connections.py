"""How long an HTTP client still uses a connection on which nothing happens.

A request that is sent while the server closes is lost, and may not be repeated if it changes something: the client lets
go well before the server does.
"""

OWN_IDLE_S = 10.0
"""Seconds for servers of ours, which keep an idle connection for 30."""
FOREIGN_IDLE_S = 4.0
"""Seconds for servers of others: uvicorn and Node.js close an idle connection after 5 unless told otherwise."""
