/*
 * Capabilities of PID 1's children.
 *
 * In a container whose tests run beside the agent's processes (mounts.c), PID 1 has three capabilities more than these.
 * Two it keeps to itself: SYS_ADMIN to mount, SETPCAP to take capabilities from its children.  The third, LEASE, is
 * of no use, and only the tests have it: the kernel lets nobody trace a process, open its descriptors, memory, environment
 * or root, or enter its namespaces who lacks one of its capabilities.
 */
#include "init.h"
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void drop(struct __user_cap_data_struct *sets, int which) {
    struct __user_cap_data_struct *half = &sets[CAP_TO_INDEX(which)];
    half->effective &= ~CAP_TO_MASK(which);
    half->permitted &= ~CAP_TO_MASK(which);
    half->inheritable &= ~CAP_TO_MASK(which);
    prctl(PR_CAPBSET_DROP, which, 0, 0, 0); /* where it fails, no_new_privs (guard.c) has the same effect on exec */
}

void drop_capabilities(enum whose whose) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, sets) < 0) _exit(127);
    if (whose == OF_AGENT) drop(sets, CAP_LEASE);
    drop(sets, CAP_SYS_ADMIN);
    drop(sets, CAP_SETPCAP);
    if (syscall(SYS_capset, &header, sets) < 0) _exit(127);
}
