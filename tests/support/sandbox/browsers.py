"""The browser that tests install into this machine's home of longshore, where it stays for the next test."""

from __future__ import annotations

import pytest

from protocol.errors import UserError
from sandbox.browser.installation import install_browser
from sandbox.host_record import SandboxHost


def install_browser_or_skip(host: SandboxHost) -> None:
    """Install the browser; skip the test if its packages cannot be installed here."""
    try:
        install_browser(host.home, print)
    except UserError as error:
        pytest.skip(f"Chromium is not installed for sandboxes: {error}")
