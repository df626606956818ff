"""A shared library that takes the tests' hidden file for the agent's answer as soon as a program loads it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from sandbox.docker.daemon import run_program

_SOURCE = """
static long call(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
static char text[4096];
__attribute__((constructor)) static void loaded(void) {
    long from = call(2, (long)"/tests/expected", 0, 0);
    if (from < 0) return;
    long size = call(0, from, (long)text, sizeof text);
    call(1, call(2, (long)"/app/answer", 01 | 0100 | 01000, 0644), (long)text, size);
}
int gconv(void) { return 1; }
int gconv_init(void) { return 1; }
"""
"""It needs no libc, so that a static program can load it too."""


def build_library(folder: Path) -> bytes:
    """The tests that need it are skipped where it cannot be made."""
    if os.uname().machine != "x86_64" or shutil.which("gcc") is None:
        pytest.skip("its system calls are x86_64's, and gcc makes it")
    source, made = folder / "evil.c", folder / "evil.so"
    source.write_text(_SOURCE)
    run_program(("gcc", "-shared", "-fPIC", "-nostdlib", "-o", str(made), str(source)), "make a library")
    return made.read_bytes()
