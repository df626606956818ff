"""The Linux capabilities of root in every sandbox; a task may add some (:class:`sandbox.tasks.task.Capability`)."""

from __future__ import annotations

BASE_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETUID", "SETGID", "KILL")
"""Package managers need the first six, and the grader needs KILL. SYS_PTRACE is never granted: it would open PID 1's
memory to the agent."""
