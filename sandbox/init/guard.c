/*
 * Keeps PID 1's CPU time.  A process with its user id, and in a container all are root, could stop it practically
 * forever: by the lowest priority, a scheduling class that only runs on an idle machine, or one CPU shared with hundreds
 * of busy processes.  So a filter on every process that PID 1 starts answers EPERM to such calls for PID 1 (or for all
 * processes of a user), as the kernel does for another user's process.
 *
 * It also refuses new namespaces and mounts, and the calls that an engine's own filter allows together with them: in a
 * container whose PID 1 may mount (mounts.c) that filter lets everyone try, and in a user namespace of its own a process
 * would have every capability.
 *
 * A filter needs SYS_ADMIN, or no_new_privs, with which sudo and other set-user-ID programs do not work: a process of
 * another user than root goes without it where PID 1 has SYS_ADMIN.
 */
#include "init.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { PROCESS = 0, WHO = 1, ANY_CLASS = -1, PRIORITY_OF_USER = 2, IO_PRIORITY_OF_USER = 3, X32_BIT = 0x40000000 };

struct guarded {
    uint32_t number;
    int process_argument;     /* index of the argument that names the process */
    int forbidden; /* value of the first argument that names a user's processes */
};

enum { CALLS = 6, REFUSED = 25, NEW_NAMESPACES = 0x7E020000 /* clone(2)'s flags CLONE_NEW… */ };

struct abi {
    uint32_t audit;
    struct guarded calls[CALLS];
    uint32_t clone;
    uint32_t refused[REFUSED];
};

/* Of newer kernels than the headers, with one number for every architecture: open_tree, move_mount, fsopen, fsconfig,
   fsmount, fspick, mount_setattr, quotactl_fd, open_tree_attr. */
#define NEWER 428, 429, 430, 431, 432, 433, 442, 443, 467
enum { CLONE3 = 435 };

static const struct abi ABIS[] = {
#if defined(__x86_64__)
    {AUDIT_ARCH_X86_64,
#elif defined(__aarch64__)
    {AUDIT_ARCH_AARCH64,
#endif
     {{SYS_sched_setaffinity, PROCESS, ANY_CLASS},
      {SYS_sched_setscheduler, PROCESS, ANY_CLASS},
      {SYS_sched_setparam, PROCESS, ANY_CLASS},
      {SYS_sched_setattr, PROCESS, ANY_CLASS},
      {SYS_setpriority, WHO, PRIORITY_OF_USER},
      {SYS_ioprio_set, WHO, IO_PRIORITY_OF_USER}},
     SYS_clone,
     {SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_bpf, SYS_perf_event_open, SYS_fanotify_init,
      SYS_lookup_dcookie, SYS_quotactl, SYS_name_to_handle_at, SYS_sethostname, SYS_setdomainname, SYS_syslog, NEWER}},
#if defined(__x86_64__)
    {AUDIT_ARCH_I386,
     {{241, PROCESS, ANY_CLASS},
      {156, PROCESS, ANY_CLASS},
      {154, PROCESS, ANY_CLASS},
      {351, PROCESS, ANY_CLASS},
      {97, WHO, PRIORITY_OF_USER},
      {289, WHO, IO_PRIORITY_OF_USER}},
     120,
     {310, 346, 21, 22, 52, 217, 357, 336, 338, 253, 131, 341, 74, 121, 103, NEWER}},
#elif defined(__aarch64__)
    {AUDIT_ARCH_ARM,
     {{241, PROCESS, ANY_CLASS},
      {156, PROCESS, ANY_CLASS},
      {154, PROCESS, ANY_CLASS},
      {380, PROCESS, ANY_CLASS},
      {97, WHO, PRIORITY_OF_USER},
      {314, WHO, IO_PRIORITY_OF_USER}},
     120,
     {337, 375, 21, 22, 52, 218, 386, 364, 367, 249, 131, 370, 74, 121, 103, NEWER}},
#endif
};

static struct sock_filter code[256];
static unsigned short length;

static void emit(uint16_t what, uint8_t then, uint8_t otherwise, uint32_t value) {
    code[length++] = (struct sock_filter){what, then, otherwise, value};
}

static void load(size_t offset) { emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset); }
static void give(uint32_t answer) { emit(BPF_RET | BPF_K, 0, 0, answer); }
static void unless_equal_skip(uint32_t value, uint8_t skip) { emit(BPF_JMP | BPF_JEQ | BPF_K, 0, skip, value); }

/* Arguments are 64 bits, little-endian on both; the kernel reads the lower half of a process's number. */
static void refuse_if(int argument, uint32_t value) {
    load(offsetof(struct seccomp_data, args) + 8u * (size_t)argument);
    unless_equal_skip(value, 1);
    give(SECCOMP_RET_ERRNO | EPERM);
}

static void guard(const struct guarded *call) {
    unsigned short from = length;
    unless_equal_skip(call->number, 0);
    refuse_if(call->process_argument, 1);
    if (call->forbidden != ANY_CLASS) refuse_if(0, (uint32_t)call->forbidden);
    give(SECCOMP_RET_ALLOW);
    code[from].jf = (uint8_t)(length - from - 1);
}

static void refuse_namespaces_and_mounts(const struct abi *abi) {
    for (int i = 0; i < REFUSED && abi->refused[i]; i++) {
        unless_equal_skip(abi->refused[i], 1);
        give(SECCOMP_RET_ERRNO | EPERM);
    }
    unless_equal_skip(CLONE3, 1);
    give(SECCOMP_RET_ERRNO | ENOSYS); /* its flags are in memory; libc then calls clone */
    unless_equal_skip(abi->clone, 4);
    load(offsetof(struct seccomp_data, args));
    emit(BPF_JMP | BPF_JSET | BPF_K, 0, 1, NEW_NAMESPACES);
    give(SECCOMP_RET_ERRNO | EPERM);
    give(SECCOMP_RET_ALLOW);
}

void guard_pid_1(int keeps_setuid) {
    length = 0;
    load(offsetof(struct seccomp_data, arch));
    for (size_t i = 0; i < sizeof ABIS / sizeof *ABIS; i++) {
        unsigned short from = length;
        unless_equal_skip(ABIS[i].audit, 0);
        load(offsetof(struct seccomp_data, nr));
        if (ABIS[i].audit == AUDIT_ARCH_X86_64) emit(BPF_ALU | BPF_AND | BPF_K, 0, 0, ~(uint32_t)X32_BIT);
        for (size_t j = 0; j < CALLS; j++) guard(&ABIS[i].calls[j]);
        refuse_namespaces_and_mounts(&ABIS[i]);
        give(SECCOMP_RET_ALLOW);
        code[from].jf = (uint8_t)(length - from - 1);
    }
    give(SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {length, code};
    if (keeps_setuid && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0) return;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter); /* a kernel without seccomp lacks only this protection */
}
