"""Builds the environment variables of the tests. Pure.

They are the image's and the task's, as ``docker exec`` sets them in the harnesses that these tasks were written for;
then those for the phase's network; then those by which the toolchain's programs are found. An image's variables are
its author's, but the files that they name may be the agent's. So tests that run on the toolchain's programs
(:attr:`~sandbox.grading.isolation.decision.Isolation.TOOLCHAIN`) do not get variables that make the shell, the loader,
libc, OpenSSL, Python, pytest or uv load, run or look for other files, nor those that glibc drops for privileged
programs.  HOME is that of the tests' user there, because the toolchain writes in it what scripts source.  Tests that
run on the image's programs get everything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sandbox.grading.isolation.decision import Isolation
from sandbox.toolchain.in_container.layout import IMPORTABLE_VARIABLE, SHIMS_ANSWER_VARIABLE, verify_environment

TESTS_DIR = "/tests"
TEMPORARY_DIR = "/.sbx-tmp"
"""Folder of pytest's temporary files (``tmp_path``), outside the tests' folder: programs that tests start as nobody use
it too."""
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
    given: Mapping[str, str],
    network: Mapping[str, str],
    isolation: Isolation,
    folders: Collection[str] = (),
    *,
    home: str = _DEFAULTS["HOME"],
    plain: bool = False,
    offline: bool,
) -> dict[str, str]:
    """Return the tests' environment.

    ``given``: variables of the image and the task; ``network``: variables for the phase's network; ``folders`` hold
    modules that tests may import; ``home``: HOME of the tests' user, unless the image or the task gives another; the
    others as for :func:`~sandbox.toolchain.in_container.layout.verify_environment`.
    """
    if isolation is Isolation.TOOLCHAIN:
        given = {name: given[name] for name in given.keys() - withheld_variables(given)}
    found = {**_DEFAULTS, "HOME": home, **given}
    ours_first = isolation is Isolation.TOOLCHAIN
    tools = verify_environment(found["PATH"], TESTS_DIR, ours_first=ours_first, plain=plain, offline=offline)
    if ours_first:
        names = {each.strip("/").partition("/")[0] for each in (TESTS_DIR, *folders)}
        tools |= {SHIMS_ANSWER_VARIABLE: "1", IMPORTABLE_VARIABLE: ":".join(sorted(names))}
    return {**found, **network, "TEST_DIR": TESTS_DIR, "PYTEST_DEBUG_TEMPROOT": TEMPORARY_DIR, **tools}


def withheld_variables(given: Mapping[str, str]) -> frozenset[str]:
    """Return the names of variables that tests on the toolchain's programs do not get, or not with this value."""
    return frozenset(name for name, value in given.items() if _leads_away(name) and _DEFAULTS.get(name) != value)


def _leads_away(name: str) -> bool:
    return name in _NAMES or (name.startswith(_FAMILIES) and name not in _HARMLESS)
