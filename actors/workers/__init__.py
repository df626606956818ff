"""The rollout worker: an actor on each node that runs many episodes in one event loop.

It asks the scheduler for requests, and sends the trajectories to the buffer.  The sandbox source and the runners know
where an episode runs; the episode runner joins them, the attempt runner maps an episode's end to a report, the request
poller asks for work, and the worker is at the top and wires them.
"""
