"""Makes the service container of a site.  Pure."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sandbox.tasks.sites.serve import SECRET_VARIABLE, SEED_VARIABLE
from sandbox.tasks.sites.web_app import PORT
from sandbox.tasks.task_containers import TaskService

_PACKAGES = ("sandbox", "sandbox/tasks", "sandbox/tasks/sites")
_MODULES = (
    *("serve", "web_app", "html_elements", "shop", "shop_data", "wiki", "wiki_data"),
    *("dashboard", "dashboard_data"),
)
_START = """import pathlib, sys
for path, text in {sources!r}.items():
    file = pathlib.Path('/tmp/site', path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
sys.path.insert(0, '/tmp/site')
from sandbox.tasks.sites.serve import main
main()
"""
TOOLCHAIN_PYTHON = "/.sbx/verify/env/bin/python3"
"""Python in every container of a sandbox, with the whole standard library."""
_BUSYBOX = "/.sbx/busybox"
_MEMORY_MB = 128


@cache
def _program() -> str:
    """Return a program that unpacks the site's modules and starts it."""
    here = Path(__file__).parent
    sources = {f"{package}/__init__.py": "" for package in _PACKAGES} | {
        f"{_PACKAGES[-1]}/{name}.py": (here / f"{name}.py").read_text() for name in _MODULES
    }
    return _START.format(sources=sources)


def make_site_service(name: str, seed: int, secret: str) -> TaskService:
    """Return the service of the site ``name``, which answers at ``http://NAME:8000/``."""
    return TaskService(
        name,
        command=(TOOLCHAIN_PYTHON, "-I", "-B", "-c", _program(), name),
        env={SEED_VARIABLE: str(seed), SECRET_VARIABLE: secret},
        healthcheck=f"{_BUSYBOX} wget -q -O /dev/null http://127.0.0.1:{PORT}/",
        memory_mb=_MEMORY_MB,
    )


def site_url(name: str) -> str:
    """Return the address of a site of ours as its task's containers see it."""
    return f"http://{name}:{PORT}/"
