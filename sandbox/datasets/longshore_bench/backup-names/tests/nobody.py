"""Programs that an agent left are run as nobody, and what they wrote is read as nobody: a link of their making would
lead root to what is expected."""

import os
import subprocess
import tempfile
from pathlib import Path

ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp"}
NOBODY = 65534


def run(*argv, stdin="", cwd="/", env=None, timeout=30):
    """Return the exit code, standard output and standard error as text, with line ends as they are."""
    done = subprocess.run(
        [str(each) for each in argv],
        input=stdin.encode(),
        check=False,
        capture_output=True,
        timeout=timeout,
        cwd=cwd,
        env={**ENV, **(env or {})},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )
    said = (each.decode("utf-8", "replace") for each in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, *said)


def folder(files=None):
    """Return a new folder that nobody owns, with these texts in it."""
    made = Path(tempfile.mkdtemp(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    for path, text in (files or {}).items():
        target = made / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
    for each in (made, *made.rglob("*")):
        os.chown(each, NOBODY, NOBODY)
    made.chmod(0o755)
    return made


def read(path):
    """Return what nobody can read there; an empty text if there is no such file."""
    return run("cat", path).stdout
