"""Many pool servers behind one address.

A task's sandboxes go to the same server while it has room, because its image is there and its containers are warm; a
server that has the image comes before one that does not; when a server is full (429) or unreachable, the next one is
tried. A lease belongs to its server, and requests about it go only there. A request is repeated only if that is
harmless, which follows from its path and its request id; every other request is sent at most once. The router keeps no
state that a restart would lose: a lease's id names its server.
"""
