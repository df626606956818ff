"""Puts Debian's Chromium into a folder of longshore's home: complete or absent, and never changed.  Blocking.

The folder is mounted read-only at :data:`~sandbox.docker.container_spec.AGENT_PROGRAMS` in the sandboxes of a run, with
its own loader, libraries, certificates and fonts, so that it runs beside any image.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from protocol.errors import UserError
from sandbox.agent_programs import BROWSER_PROGRAMS
from sandbox.docker.container_spec import AGENT_PROGRAMS
from sandbox.docker.daemon import ReportLine, apt_install, run_program
from sandbox.toolchain.downloads import build_folder_once
from sandbox.toolchain.portable_programs import make_portable

PROGRAM, FONTS_FILE = "chromium", "fonts.conf"
_DEBIAN_FOLDER = Path("/usr/lib/chromium")
_FILES = (
    *(
        PROGRAM,
        "chrome_crashpad_handler",
        "chrome_100_percent.pak",
        "resources.pak",
        "icudtl.dat",
        "v8_context_snapshot.bin",
    ),
    *("libEGL.so", "libGLESv2.so", "libvk_swiftshader.so", "libvulkan.so.1", "vk_swiftshader_icd.json"),
)
_NSS_LIBRARIES = ("libsoftokn3.so", "libfreebl3.so", "libfreeblpriv3.so", "libnssckbi.so")
"""Libraries that NSS opens by name: its keys, its arithmetic and the certificates of public authorities."""
_FONTS = Path("/usr/share/fonts/truetype/dejavu")
_FONT_NAMES = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf")


def install_browser(home: Path, say: ReportLine) -> Path:
    """Return the browser's folder in longshore's ``home``, installed if it is missing.

    Debian's packages that this machine lacks are installed.  Raises UserError, which says what to do.
    """

    def fill(making: Path) -> None:
        if missing := [name for name, path in _PACKAGES.items() if not path.exists()]:
            apt_install(missing, say)
        say("copying Chromium, its libraries and its fonts …")
        for name in _FILES:
            shutil.copy(_DEBIAN_FOLDER / name, making / name)
        (making / "locales").mkdir()
        shutil.copy(_DEBIAN_FOLDER / "locales" / "en-US.pak", making / "locales")
        for library in _nss_libraries():
            shutil.copy(library, making / library.name)
        _write_fonts(making)
        make_portable(making, making / PROGRAM)
        run_program(("chmod", "-R", "a+rX", str(making)), "let every user of a sandbox read it")

    return build_folder_once(home / BROWSER_PROGRAMS.folder, fill)


def is_browser_installed(home: Path) -> bool:
    return (home / BROWSER_PROGRAMS.folder).is_dir()


def require_browser(home: Path) -> None:
    """Raise UserError if the browser is not installed."""
    if not is_browser_installed(home):
        raise UserError("Chromium is not installed for the sandboxes of this machine: run `longshore browser install`")


_PACKAGES = {"chromium": _DEBIAN_FOLDER / PROGRAM, "fonts-dejavu-core": _FONTS / _FONT_NAMES[0]}
"""A file of each Debian package that is needed."""


def _nss_libraries() -> list[Path]:
    places = [folder / sub for folder in Path("/usr/lib").glob("*-linux-gnu") for sub in ("", "nss")]
    found = {name: next((p / name for p in places if (p / name).exists()), None) for name in _NSS_LIBRARIES}
    if missing := [name for name, path in found.items() if path is None]:
        raise UserError(f"Chromium needs {', '.join(missing)}, which this machine lacks: run `apt-get install libnss3`")
    return [path for path in found.values() if path is not None]


def _write_fonts(making: Path) -> None:
    (making / "fonts").mkdir()
    for name in _FONT_NAMES:
        if (_FONTS / name).exists():
            shutil.copy(_FONTS / name, making / "fonts")
    aliases = "".join(
        f"<alias><family>{family}</family><prefer><family>{font}</family></prefer></alias>"
        for family, font in (
            ("sans-serif", "DejaVu Sans"),
            ("serif", "DejaVu Serif"),
            ("monospace", "DejaVu Sans Mono"),
        )
    )
    (making / FONTS_FILE).write_text(
        f'<?xml version="1.0"?><fontconfig><dir>{AGENT_PROGRAMS}/fonts</dir>'
        f'<cachedir prefix="xdg">fontconfig</cachedir>{aliases}</fontconfig>\n'
    )
