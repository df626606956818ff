"""The system calls that programs in our containers may make: a profile of seccomp, as Docker and Podman read it. Pure.

It starts from the calls that Docker's newest default profile allows (moby/profiles, Apache License, Version 2.0, read
at its commit cd3bed8), because an engine applies the default of its own age. Left out beyond that: sockets other than
UNIX, IPv4, IPv6 and netlink (VSOCK leads to the hypervisor, ALG into the kernel's cryptography); ``socketcall``, by
which 32-bit programs would open any socket; and what needs privileges that no container has. Never allowed, with
whatever capabilities: io_uring, keyrings, userfaultfd, bpf, perf events, modules, clocks.

Namespaces and mounts are only for PID 1, which alone may have SYS_ADMIN (:mod:`sandbox.capabilities`), and which takes
these calls from its children (``sandbox/init/guard.c``).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from tempfile import NamedTemporaryFile

from sandbox.docker.address import DockerAddress
from sandbox.docker.retry import Json

_ALLOWED = """
    accept accept4 access adjtimex alarm bind brk cachestat capget capset chdir chmod chown chown32
    clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep
    clock_nanosleep_time64 close close_range connect copy_file_range creat dup dup2 dup3 epoll_create
    epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2
    execve execveat exit exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate fchdir fchmod fchmodat
    fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr flock fork fremovexattr
    fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futex futex_requeue
    futex_time64 futex_wait futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd
    getdents getdents64 getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer
    getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32
    getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr getxattrat
    inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents
    io_pgetevents io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set ipc kill landlock_add_rule
    landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat listen listmount
    listxattr listxattrat llistxattr _llseek lremovexattr lseek lsetxattr lstat lstat64 madvise map_shadow_stack
    membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2
    mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend
    mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap
    name_to_handle_at nanosleep newfstatat _newselect open openat openat2 pause pidfd_open pidfd_send_signal
    pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv preadv2 prlimit64
    process_mrelease process_vm_readv process_vm_writev pselect6 pselect6_time64 ptrace pwrite64 pwritev
    pwritev2 read readahead readlink readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg
    remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction
    rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity
    sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64
    sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget
    semop semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto set_robust_list
    set_thread_area set_tid_address setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups
    setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32
    setreuid setreuid32 setrlimit setsid setsockopt setuid setuid32 setxattr setxattrat shmat shmctl shmdt
    shmget shutdown sigaltstack signalfd signalfd4 sigprocmask sigreturn splice stat stat64 statfs statfs64
    statmount statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create
    timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create
    timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill truncate truncate64
    ugetrlimit umask uname unlink unlinkat utime utimensat utimensat_time64 utimes vfork vmsplice wait4 waitid
    waitpid write writev
"""
_SOCKET_FAMILIES = (1, 2, 10, 16)
"""UNIX, IPv4, IPv6, netlink."""
_PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
"""Linux, 32-bit Linux, the same with the version of 2.6, and the question for the present one."""
_NAMESPACE_FLAGS = 0x7E020000
"""All CLONE_NEW flags of ``clone``."""
_WITH_SYS_ADMIN = """
    clone clone3 fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree setdomainname sethostname setns
    umount umount2 unshare
"""
_X86 = ("arch_prctl", "modify_ldt")
_ARM = ("arm_fadvise64_64", "arm_sync_file_range", "breakpoint", "cacheflush", "set_tls")
_ENOSYS = 38
"""Answer to ``clone3``, whose flags no filter can read: the C library takes ``clone`` instead."""


@contextmanager
def seccomp_option(*, podman: bool, address: DockerAddress) -> Generator[tuple[str, ...]]:
    """Yield the security options that apply the profile on an engine: Docker, or Podman.

    Docker takes the profile itself.  Podman takes the path of a file on its machine, which exists until the block ends;
    on another machine there is none, and Podman applies its own default.
    """
    if not podman:
        yield (f"seccomp={seccomp_profile()}",)
    elif not address.socket:
        yield ()
    else:
        with NamedTemporaryFile("w", prefix="longshore-seccomp-", suffix=".json") as file:
            file.write(seccomp_profile())
            file.flush()
            yield (f"seccomp={file.name}",)


def seccomp_profile() -> str:
    """Return the profile as JSON; the engine reads which parts apply to a container's capabilities."""
    no_admin = {"excludes": {"caps": ["CAP_SYS_ADMIN"]}}
    rules = [
        _rule(_ALLOWED.split()),
        *(_rule(["socket"], _argument(family)) for family in _SOCKET_FAMILIES),
        _rule(["socketpair"], _argument(_SOCKET_FAMILIES[0])),
        *(_rule(["personality"], _argument(persona)) for persona in _PERSONALITIES),
        _rule(_X86, {"includes": {"arches": ["amd64", "x86"]}}),
        _rule(_ARM, {"includes": {"arches": ["arm64", "arm"]}}),
        _rule(["chroot"], {"includes": {"caps": ["CAP_SYS_CHROOT"]}}),
        _rule(_WITH_SYS_ADMIN.split(), {"includes": {"caps": ["CAP_SYS_ADMIN"]}}),
        _rule(["clone"], _argument(_NAMESPACE_FLAGS, "SCMP_CMP_MASKED_EQ") | no_admin),
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS} | no_admin,
    ]
    architectures = [
        {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
        {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]},
    ]
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "archMap": architectures, "syscalls": rules})


def _rule(names: Sequence[str], condition: Json | None = None) -> Json:
    return {"names": list(names), "action": "SCMP_ACT_ALLOW"} | (condition or {})


def _argument(value: int, operation: str = "SCMP_CMP_EQ") -> Json:
    """Build the condition on a call's first argument; a masked one must be 0."""
    return {"args": [{"index": 0, "value": value, "op": operation}]}
