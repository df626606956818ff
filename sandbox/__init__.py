"""The sandboxes of one machine: containers in which an agent works on a task and is graded.

Packages, from above; each imports only those below it and :mod:`protocol`:

- ``stress``: the load and fault test of a machine; ``validation``: the examination of a data set's tasks.
- ``host``: the set-up of a machine, and ``host_record``, the file with its result.
- ``server``: this machine's pool over HTTP; ``router``: many such servers behind one address.
- ``providers``: one interface to local, remote, Daytona and plug-in sandboxes; rollout uses nothing else.
- ``http``: the shared part of HTTP servers and clients.
- ``pool``: capacity, warm containers, heartbeats, the disk limit and the removal of orphans.
- ``tools``: the tools that agents call; ``grading``: hidden tests, isolated from the agent, and their verdict.
- ``networking``: networks per phase and the task's services; ``egress_proxy``: the caching proxy to allowed hosts.
- ``session``: the life of one sandbox, with its connection to PID 1, shells, terminals and files.
- ``images``: task images, built and evicted; ``toolchain``: longshore's programs in every sandbox.
- ``init``: PID 1 of every sandbox, in C.
- ``docker``: the client of one Docker engine; ``tasks``: the task model and its formats; ``datasets``: our own tasks.

An episode waits for a slot of the pool and for its container; a session waits for answers of PID 1; the pool waits only
for the Docker engine.  Nothing waits for an agent's program without a deadline, and a container ends at its own
deadline unless its owner extends it.
"""

from protocol.dependencies import require_packages

require_packages("aiodocker", "xxhash")
