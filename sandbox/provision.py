"""The steps behind ``python -m sandbox.host up``: a Docker engine, the base image, the kit.  Blocking, idempotent.

Nothing outside our own folders is configured: an engine that we start has its own data root, exec root, socket, pid
file and log, and /etc/docker is never written.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from protocol.errors import UserError
from sandbox.init.build import build_init

Say = Callable[[str], None]

SYSTEM_SOCKET = "unix:///var/run/docker.sock"
SUITE = "bookworm"
PACKAGES = (
    "bash", "bzip2", "ca-certificates", "coreutils", "diffutils", "file", "findutils", "gawk", "grep", "gzip", "jq",
    "less", "procps", "python3-minimal", "sed", "sqlite3", "tar", "tree", "util-linux", "vim-tiny", "xz-utils",
)  # fmt: skip
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_ENGINE_PACKAGES = ("docker.io", "iptables", "mmdebstrap")
_ENGINE_START_S = 90.0
_ENGINE_PID_S = 10.0
"""A dockerd that has written no pid file by then has given up."""


class EngineForbidden(UserError):
    """There is a Docker engine, and this user may not talk to it."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"this user may not use the Docker engine at {url}: run `sudo usermod -aG docker $USER` and log in again, "
            "or run this as root"
        )


def engine_answers(url: str, timeout_s: float = 3.0) -> bool:
    """Whether a Docker engine answers ``/_ping`` at this address.  Raises :class:`EngineForbidden`."""
    connection: http.client.HTTPConnection
    if url.startswith("unix://"):
        connection = _UnixConnection(url.removeprefix("unix://"), timeout_s)
    else:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 2375, timeout=timeout_s)
    try:
        connection.request("GET", "/_ping")
        return connection.getresponse().read().strip() == b"OK"
    except PermissionError as error:
        raise EngineForbidden(url) from error
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("docker", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def run(arguments: Sequence[str], what: str, *, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a program to its end and return its output.  Raises UserError with the end of what it said."""
    try:
        done = subprocess.run(
            list(arguments), capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, **(env or {})}
        )
    except FileNotFoundError as error:
        raise UserError(f"could not {what}: {arguments[0]} is not installed") from error
    if done.returncode:
        tail = (done.stderr or done.stdout).strip()[-1500:]
        raise UserError(f"could not {what}: `{' '.join(arguments[:4])} …` exited {done.returncode}:\n{tail}")
    return done.stdout


def apt_install(packages: Sequence[str], say: Say) -> None:
    """Install Debian packages, as root.  Raises UserError that says what to do by hand."""
    by_hand = f"apt-get install {' '.join(packages)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise UserError(f"cannot install {', '.join(packages)} (needs root and apt-get); as root run: {by_hand}")
    say(f"installing {', '.join(packages)} …")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run(("apt-get", "update", "-qq"), "read the package lists", env=quiet)
    run(("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages), f"run {by_hand}", env=quiet)


def find_engine(addresses: Sequence[str]) -> str | None:
    """The first address at which an engine answers.  Raises :class:`EngineForbidden` when the only one may not be
    used."""
    forbidden: EngineForbidden | None = None
    for url in dict.fromkeys(addresses):
        try:
            if engine_answers(url):
                return url
        except EngineForbidden as error:
            forbidden = error
    if forbidden is not None:
        raise forbidden
    return None


def start_engine(root: Path, runtime: Path, say: Say) -> tuple[str, int]:
    """Start a dockerd of our own in a session of its own.  Returns its address and pid."""
    if os.geteuid() != 0:
        raise UserError(
            "no Docker engine answers, and only root can start one: start Docker, or set DOCKER_HOST to a running one"
        )
    if shutil.which("dockerd") is None:
        apt_install(_ENGINE_PACKAGES, say)
        if engine_answers(SYSTEM_SOCKET):  # the package may have started its own
            return SYSTEM_SOCKET, 0
    for folder in (root, runtime):
        folder.mkdir(parents=True, exist_ok=True)
    url, log, pid_file = f"unix://{runtime}/docker.sock", root / "dockerd.log", runtime / "docker.pid"
    say(f"starting dockerd (data in {root}, log {log}) …")
    arguments = [
        "dockerd", f"--host={url}", f"--data-root={root}/data", f"--exec-root={runtime}/exec",
        f"--pidfile={pid_file}", "--bridge=none", "--iptables=false", "--log-level=warn",
    ]  # fmt: skip
    with log.open("ab") as sink:  # setsid --fork: nobody's child, so that it neither dies with us nor stays a zombie
        subprocess.run(("setsid", "--fork", *arguments), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, check=True)
    began = time.monotonic()
    while not engine_answers(url):
        waited = time.monotonic() - began
        if waited > _ENGINE_START_S or (waited > _ENGINE_PID_S and not pid_file.exists()):
            tail = log.read_text(errors="replace")[-1500:]
            raise UserError(f"dockerd did not start; the end of {log}:\n{tail}")
        time.sleep(0.2)
    return url, int(pid_file.read_text())


def recipe_tag() -> str:
    """The base image's name: it changes when the recipe does."""
    recipe = repr((SUITE, PACKAGES, _EXCLUDED, 1))
    return f"longshore/base:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def docker(url: str, *arguments: str, what: str) -> str:
    return run(("docker", "--host", url, *arguments), what)


def image_id(url: str, name: str) -> str:
    """The image's content id; empty when the engine does not have it."""
    try:
        return docker(url, "image", "inspect", "--format", "{{.Id}}", name, what="look at the images").strip()
    except UserError:
        return ""


def has_image(url: str, name: str) -> bool:
    return bool(image_id(url, name))


def build_base_image(url: str, say: Say) -> str:
    """Build the base image from Debian packages.  No registry is asked."""
    name = recipe_tag()
    if shutil.which("mmdebstrap") is None:
        apt_install(("mmdebstrap",), say)
    say(f"building {name} from Debian packages (about 30 s) …")
    with tempfile.TemporaryDirectory(prefix="longshore-base-") as folder:
        archive = Path(folder) / "base.tar"
        excluded = [f"--dpkgopt=path-exclude={path}" for path in _EXCLUDED]
        run(
            ("mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", *excluded, SUITE, str(archive)),
            "build the base image",
        )
        docker(url, "import", "--change", 'CMD ["bash"]', str(archive), name, what="import the base image")
    return name


def build_kit(cache: Path, busybox: Path | None, say: Say) -> Path:
    """PID 1 and the static tools, in a folder that is mounted into every sandbox at /.sbx and never changes."""
    init = build_init(cache)
    tools = busybox or _static_busybox(cache, say)
    digest = hashlib.sha256(init.read_bytes() + tools.read_bytes()).hexdigest()[:12]
    kit = cache / f"kit-{digest}"
    if kit.exists():
        return kit
    applets = run((str(tools), "--list"), "ask busybox for its tools").split()
    making = Path(tempfile.mkdtemp(dir=cache, prefix=".kit-"))
    try:
        shutil.copy(init, making / "init")
        shutil.copy(tools, making / "busybox")
        (making / "bin").mkdir()
        for applet in applets:
            (making / "bin" / applet).symlink_to("/.sbx/busybox")
        for each in (making, making / "init", making / "busybox", making / "bin"):
            each.chmod(0o755)
        making.rename(kit)
    except OSError:
        shutil.rmtree(making, ignore_errors=True)
        if not kit.exists():  # else another process was faster
            raise
    return kit


def _static_busybox(cache: Path, say: Say) -> Path:
    target = cache / "busybox-static"
    if target.exists():
        return target
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise UserError("the verifier kit needs a static busybox: set LONGSHORE_BUSYBOX to one")
    say("fetching busybox-static for the verifier kit …")
    with tempfile.TemporaryDirectory(prefix="longshore-kit-", dir=cache) as folder:
        place = Path(folder)
        try:
            run(("apt-get", "download", "-qq", "busybox-static"), "download busybox-static", cwd=place)
        except UserError:
            if os.geteuid() != 0:
                raise
            run(("apt-get", "update", "-qq"), "read the package lists")
            run(("apt-get", "download", "-qq", "busybox-static"), "download busybox-static", cwd=place)
        package = next(place.glob("*.deb"))
        run(("dpkg", "-x", str(package), str(place / "out")), "unpack busybox-static")
        found = next(
            (each for each in (place / "out/bin/busybox", place / "out/usr/bin/busybox") if each.is_file()), None
        )
        if found is None:
            raise UserError(f"{package.name} holds no busybox: set LONGSHORE_BUSYBOX to a static one")
        found.chmod(0o755)
        shutil.copy(found, place / "busybox")
        (place / "busybox").rename(target)
    return target
