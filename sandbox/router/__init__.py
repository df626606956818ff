"""Many pool servers behind one address.

A task's sandboxes go to the same worker as long as there is room (its image is there, its containers are warm); to one
that has the image before one that has not; to the next when a worker is full (429) or cannot be reached.  A lease
belongs to its worker: what is asked of it goes there and nowhere else.  A request is repeated only where that does no
harm, which its path and its request id tell; everything else is at most once.  The router keeps nothing that a restart
would lose: a lease's id names its worker.
"""
