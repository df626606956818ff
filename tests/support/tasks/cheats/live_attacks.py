"""Attacks by a process of the agent, as root, on tests that run beside it.

Each is a piece of Perl that prints what it gets from the process ``$pid``, if anything. A guest, a process of the agent
with a secret of its own, shows that an attack works on processes that are not protected.
"""

from __future__ import annotations

import platform

GUEST, TESTS = "secret-of-the-guest", "secret-of-the-tests"
"""What an attack may read from the agent's own process, and what it must not read from the tests'."""
_CALLS = (
    "ptrace", "process_vm_readv", "pidfd_open", "pidfd_getfd", "setns", "unshare", "mount", "umount2", "clone",
    "clone3", "renameat2",
)  # fmt: skip
_NUMBERS = {
    "x86_64": (101, 310, 434, 438, 308, 272, 165, 166, 56, 435, 316),
    "aarch64": (117, 270, 434, 438, 268, 97, 40, 39, 220, 435, 276),
}[platform.machine()]
PERL_CALLS = "".join(f"sub SYS_{name} {{ {number} }}\n" for name, number in zip(_CALLS, _NUMBERS, strict=True))
"""Perl functions with the numbers of system calls on this machine."""

ON_PROCESS = {
    "its root": 'print content("/proc/$pid/root$_") for "/tests/expected", "/app/guest/expected"',
    "its directory": 'print content("/proc/$pid/cwd/expected")',
    "its descriptors": 'print content($_) for glob("/proc/$pid/fd/*")',
    "its environment": 'print content("/proc/$pid/environ")',
    "its memory": r"""
        my ($from, $to) = map { hex } content("/proc/$pid/maps") =~ /(\w+)-(\w+) .*\[stack/ or next;
        open(my $memory, "<", "/proc/$pid/mem") or next;
        sysseek($memory, $from, 0);
        sysread($memory, my $data, $to - $from);
        print $data""",
    "its memory, traced": r"""
        syscall(SYS_ptrace, 16, $pid, 0, 0) == 0 or next;
        waitpid($pid, 0x40000000);
        print "traced ", content("/proc/$pid/environ") || $names{$pid};
        syscall(SYS_ptrace, 17, $pid, 0, 0)""",
    "its memory, by a call": r"""
        my $data = "\0" x 4096;
        my ($here, $there) = (pack("PQ", $data, 4096), pack("QQ", 4096, 4096));
        next if syscall(SYS_process_vm_readv, $pid, $here, 1, $there, 1, 0) < 0 && !$!{EFAULT};
        print "may be read ", $names{$pid}""",
    "its descriptors, copied": r"""
        my $process = syscall(SYS_pidfd_open, $pid, 0);
        for my $fd (0 .. 20) {
            my $mine = syscall(SYS_pidfd_getfd, $process, $fd, 0);
            print content("/proc/self/fd/$mine") if $mine >= 0;
        }""",
    "its mount namespace": r"""
        open(my $namespace, "<", "/proc/$pid/ns/mnt") and print "opened ", $names{$pid};
        my $process = syscall(SYS_pidfd_open, $pid, 0);
        print "entered ", content("/tests/expected"), $names{$pid} if syscall(SYS_setns, $process, 0x20000) == 0""",
}
"""By what they are after. The system calls that read no file print the name of a process on which they work."""


def attack_every_process(body: str) -> str:
    """Return a program that attacks every other process once and prints what it got.

    The secret is also in the arguments of the processes, so that they are known by name.
    """
    return rf"""
use POSIX; use Errno; $| = 1;
{PERL_CALLS}
sub content {{
    my ($file, $data) = (shift, "");
    return "" if -p $file;
    open(my $in, "<", $file) or return "";
    sysread($in, $data, 65536);
    return $data;
}}
my @pids = grep {{ $_ != $$ }} map {{ m{{/(\d+)$}} ? $1 + 0 : () }} glob("/proc/*");
my %names = map {{ $_ => content("/proc/$_/cmdline") }} @pids;
for my $pid (@pids) {{ {body}; print "\n" }}
"""


THROUGH_NOBODY = r"""
for my $status (glob("/proc/[0-9]*/status")) {
    open(my $in, "<", $status) or next;
    my $said = join("", <$in>);
    next if $said !~ /^Uid:\t65534\s/m;
    my ($pid) = $status =~ m{/proc/(\d+)/};
    $) = "65534 65534";
    $> = 65534;
    my $is_open = opendir(my $root, "/proc/$pid/root");
    $> = 0;
    next if !$is_open;
    chdir($root);
    open(my $file, "<", "tests/expected") or next;
    print <$file>;
}
"""
"""A program that enters the root of a process of nobody as that user, and reads the tests there as root."""
