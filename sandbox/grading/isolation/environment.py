"""What tests have in their environment.  Pure.

The image's variables and the task's, as ``docker exec`` gives them in the harnesses that these tasks were written for;
what the phase's network needs over them; and, over all, what makes the kit's programs be found.  An image's variables
are its author's, and where they lead may be the agent's.  So where the kit's programs run the tests
(:attr:`~sandbox.grading.isolation.decision.Isolation.KIT`) these programs do not get what would take them there: one that makes the
shell, the loader, libc, OpenSSL, Python, pytest or uv load or run something, or look for files of theirs elsewhere; and
all that glibc takes away from a program with more rights than its caller.  HOME is root's there, because the kit writes
in it what scripts source.  Where the image's programs run the tests they get everything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sandbox.grading.isolation.decision import Isolation
from sandbox.toolchain.in_container.layout import IMPORTABLE_VARIABLE, SHIMS_ANSWER_VARIABLE, verify_environment

TESTS_DIR = "/tests"
TEMPORARY_DIR = "/.sbx-tmp"
"""Where pytest makes what it calls temporary and keeps (``tmp_path``).  Outside the tests' folder, so that one that
the tests start as nobody has a place there too."""
_DEFAULTS = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}
_FAMILIES = ("LD_", "MALLOC_", "RESOLV_", "TEXTDOMAIN", "OPENSSL_", "BASH", "PYTHON", "_PYTHON", "PYTEST_", "UV_")
_NAMES = frozenset((
    "GCONV_PATH", "GETCONF_DIR", "GLIBC_TUNABLES", "HOSTALIASES", "LOCALDOMAIN", "LOCPATH", "NIS_PATH", "NLSPATH",
    "RES_OPTIONS", "TMPDIR", "TZDIR",
    "CDPATH", "ENV", "EXECIGNORE", "FUNCNEST", "GLOBIGNORE", "IFS", "POSIXLY_CORRECT", "PROMPT_COMMAND", "PS0", "PS1",
    "PS2", "PS4", "SHELLOPTS",
    "HOME",
))  # fmt: skip
_HARMLESS = frozenset((
    "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER", "PYTHONHASHSEED", "PYTHONUTF8",
    "PYTHON_VERSION", "PYTHON_SHA256", "PYTHON_PIP_VERSION",
))  # fmt: skip


def build_test_environment(
    image: Mapping[str, str],
    task: Mapping[str, str],
    network: Mapping[str, str],
    isolation: Isolation,
    folders: Collection[str] = (),
    *,
    offline: bool,
) -> dict[str, str]:
    """``network`` is what the phase's needs, ``folders`` hold what tests may import; the others as for
    :func:`~sandbox.toolchain.in_container.layout.verify_environment`."""
    given = {**image, **task}
    if isolation is Isolation.TOOLCHAIN:
        given = {name: given[name] for name in given.keys() - withheld_variables(given)}
    found = {**_DEFAULTS, **given}
    ours_first = isolation is Isolation.TOOLCHAIN
    tools = verify_environment(found["PATH"], TESTS_DIR, ours_first=ours_first, offline=offline)
    if ours_first:
        names = {each.strip("/").partition("/")[0] for each in (TESTS_DIR, *folders)}
        tools |= {SHIMS_ANSWER_VARIABLE: "1", IMPORTABLE_VARIABLE: ":".join(sorted(names))}
    return {**found, **network, "TEST_DIR": TESTS_DIR, "PYTEST_DEBUG_TEMPROOT": TEMPORARY_DIR, **tools}


def withheld_variables(given: Mapping[str, str]) -> frozenset[str]:
    """The names of those that tests on the kit's programs do not get, or not with this value."""
    return frozenset(name for name, value in given.items() if _leads_away(name) and _DEFAULTS.get(name) != value)


def _leads_away(name: str) -> bool:
    return name in _NAMES or (name.startswith(_FAMILIES) and name not in _HARMLESS)
