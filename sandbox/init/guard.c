/*
 * Keeps PID 1's CPU time.  A process with its user id, and in a container all are root, could stop it practically
 * forever: by the lowest priority, a scheduling class that only runs on an idle machine, or one CPU shared with hundreds
 * of busy processes.  So a filter on every process that PID 1 starts answers EPERM to such calls for PID 1 (or for all
 * processes of a user), as the kernel does for another user's process.
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

struct abi {
    uint32_t audit;
    struct guarded calls[6];
};

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
      {SYS_ioprio_set, WHO, IO_PRIORITY_OF_USER}}},
#if defined(__x86_64__)
    {AUDIT_ARCH_I386,
     {{241, PROCESS, ANY_CLASS},
      {156, PROCESS, ANY_CLASS},
      {154, PROCESS, ANY_CLASS},
      {351, PROCESS, ANY_CLASS},
      {97, WHO, PRIORITY_OF_USER},
      {289, WHO, IO_PRIORITY_OF_USER}}},
#elif defined(__aarch64__)
    {AUDIT_ARCH_ARM,
     {{241, PROCESS, ANY_CLASS},
      {156, PROCESS, ANY_CLASS},
      {154, PROCESS, ANY_CLASS},
      {380, PROCESS, ANY_CLASS},
      {97, WHO, PRIORITY_OF_USER},
      {314, WHO, IO_PRIORITY_OF_USER}}},
#endif
};

static struct sock_filter code[128];
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

void guard_pid_1(void) {
    length = 0;
    load(offsetof(struct seccomp_data, arch));
    for (size_t i = 0; i < sizeof ABIS / sizeof *ABIS; i++) {
        unsigned short from = length;
        unless_equal_skip(ABIS[i].audit, 0);
        load(offsetof(struct seccomp_data, nr));
        if (ABIS[i].audit == AUDIT_ARCH_X86_64) emit(BPF_ALU | BPF_AND | BPF_K, 0, 0, ~(uint32_t)X32_BIT);
        for (size_t j = 0; j < 6; j++) guard(&ABIS[i].calls[j]);
        give(SECCOMP_RET_ALLOW);
        code[from].jf = (uint8_t)(length - from - 1);
    }
    give(SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {length, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter); /* a kernel without seccomp lacks only this protection */
}
