"""The command with which Chromium starts in a sandbox, and talks on its terminal.  Pure."""

from __future__ import annotations

import shlex

from sandbox.browser.installation import FONTS_FILE, PROGRAM
from sandbox.docker.container_spec import AGENT_PROGRAMS
from sandbox.toolchain.in_container.layout import BUSYBOX

WIDTH, HEIGHT = 1280, 800
"""Size of the window, in pixels."""
_DISABLED = (
    *("AsyncDns", "DnsOverHttps", "IsolateOrigins", "site-per-process", "Translate", "OptimizationHints"),
    *("MediaRouter", "PreloadTopChromeWebUI", "HttpsUpgrades", "HttpsFirstBalancedModeAutoEnable"),
)
"""Features that would ask others, or another address than the page's, or take a process for each frame."""
_FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", f"--window-size={WIDTH},{HEIGHT}", "--hide-scrollbars"),
    # the container is the sandbox: user namespaces are not for its processes
    *("--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage", "--disable-breakpad"),
    # one process for all pages of the tab and its frames
    *("--disable-site-isolation-trials", "--js-flags=--max-old-space-size=384"),
    # nobody is asked for anything but the pages themselves
    *("--disable-background-networking", "--disable-component-update", "--disable-domain-reliability"),
    *("--disable-sync", "--disable-extensions", "--disable-default-apps", "--disable-quic", "--no-pings"),
    *("--no-first-run", "--no-default-browser-check", "--disable-client-side-phishing-detection"),
    # the same page is the same observation
    *("--disable-smooth-scrolling", "--mute-audio", "--lang=en-US", "--force-color-profile=srgb"),
    *("--disable-popup-blocking", "--disable-prompt-on-repost", "--disable-notifications", "--deny-permission-prompts"),
    *("--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows", "--password-store=basic"),
    f"--disable-features={','.join(_DISABLED)}",
)
LOG_NAME = "chromium.log"


def launch_command(home: str) -> list[str]:
    """Return the arguments that start Chromium with its files in ``home``, which must not exist yet.

    Its messages pass through the terminal of the process, once that has printed a NUL byte.  Proxies are those of the
    environment.
    """
    folder = shlex.quote(home)
    start = shlex.join([f"{AGENT_PROGRAMS}/{PROGRAM}", *_FLAGS, f"--user-data-dir={home}/profile", "about:blank"])
    script = (
        f"{BUSYBOX} mkdir -m 700 {folder} && cd {folder} && {BUSYBOX} stty raw -echo && printf '\\000' && "
        f"HOME={folder} XDG_CACHE_HOME={folder} XDG_CONFIG_HOME={folder} TMPDIR={folder} "
        f"FONTCONFIG_FILE={AGENT_PROGRAMS}/{FONTS_FILE} exec {start} 3<&0 4>&1 < /dev/null > {LOG_NAME} 2>&1"
    )
    return [BUSYBOX, "sh", "-c", script]
