"""The Linux capabilities of root in every sandbox; a task may add some (:class:`sandbox.tasks.task.Capability`)."""

from __future__ import annotations

BASE_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETUID", "SETGID", "KILL")
"""Package managers need the first six, and the grader needs KILL. SYS_PTRACE is never granted: it would open PID 1's
memory to the agent."""

PID_1_CAPABILITIES = ("SYS_ADMIN", "SETPCAP", "LEASE")
"""The capabilities that PID 1 needs in addition to run tests beside the agent's processes (``sandbox/init/mounts.c``),
or processes of other users than root for whom ``sudo`` works (``sandbox/init/guard.c``).

It keeps the first two to itself: to mount and to filter system calls, and to take capabilities from its children. LEASE
is only the tests': no process that lacks it may trace one that has it. No agent has any of them."""
