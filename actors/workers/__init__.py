"""The rollout worker: an actor on each node that runs many episodes in one event loop.

It polls the scheduler for requests and sends the trajectories to the buffer.  The sandbox source opens sandboxes; the
harness and environment runners run their kinds of episodes; the episode runner chooses among them; the attempt runner
turns the end of an episode into a report; the request poller fetches requests; the worker is at the top and wires them.
"""
