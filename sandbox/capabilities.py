"""The Linux capabilities of root in every sandbox."""

from __future__ import annotations

BASE_CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETUID", "SETGID", "KILL"),
    *("SETFCAP", "SYS_CHROOT", "AUDIT_WRITE"),
)
"""Docker's defaults, which published tasks rely on (packages, sshd, sudo), without four: MKNOD and NET_RAW, that
open devices and packets to the agent; SETPCAP, which no task needs; and NET_BIND_SERVICE, which no port in a container
does. SYS_PTRACE is never granted: it would open PID 1's memory to the agent."""

SERVICE_CAPABILITIES = (*BASE_CAPABILITIES, "SETPCAP", "NET_BIND_SERVICE", "IPC_LOCK")
"""These are the capabilities that root may have in a service beside the agent's container, if its task names them.
SETPCAP gives no others where no program gains privileges, and memory that IPC_LOCK locks counts towards the service's
limit."""

PID_1_CAPABILITIES = ("SYS_ADMIN", "SETPCAP", "LEASE")
"""The capabilities that PID 1 needs in addition to run tests beside the agent's processes (``sandbox/init/mounts.c``),
or processes of other users than root for whom ``sudo`` works (``sandbox/init/guard.c``), and with which folders become
read-only (:mod:`sandbox.docker.files.read_only_folders`).

It keeps the first two to itself: to mount and to filter system calls, and to take capabilities from its children. LEASE
is only the tests': no process that lacks it may trace one that has it. No agent has any of them."""
