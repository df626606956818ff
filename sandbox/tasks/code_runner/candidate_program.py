"""The candidate's program file, run as an unprivileged user: with text on its standard input, or loaded as a server.

Runs in the sandbox, as root, on any Python from 3.9.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox.tasks.code_runner.candidate_channel import CASE_TIMEOUT_S
from sandbox.tasks.code_runner.candidate_client import CandidateClient

AS_NOBODY: Mapping[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
"""Arguments of ``subprocess`` that drop every right of root."""
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    "from sandbox.tasks.code_runner.candidate_server import main; sys.path.pop(0);"
    "main(sys.argv[2], int(sys.argv[3]))"
)


class CandidateProgram:
    """A copy of the program that the unprivileged user may read, in a folder of its own."""

    def __init__(self, program: Path) -> None:
        self.folder = Path("/tmp") / os.urandom(8).hex()  # noqa: S108  an unguessable name: mkdir fails if it exists
        self.folder.mkdir()
        self.folder.chmod(0o755)
        self.program = self.folder / "solution.py"
        _copy(program, self.program)
        self.work = self.folder / "work"
        self.work.mkdir()
        os.chown(self.work, AS_NOBODY["user"], AS_NOBODY["group"])

    @contextmanager
    def as_candidate_user(self) -> Generator[None]:
        """Become the unprivileged user, in the program's working directory, until the block ends.

        Files are shared with the program, and a link that it made leads nowhere that it could not access itself.
        """
        user, group, folder = os.geteuid(), os.getegid(), os.open(".", os.O_RDONLY)
        os.chdir(self.work)
        os.setegid(AS_NOBODY["group"])
        os.seteuid(AS_NOBODY["user"])
        try:
            yield
        finally:
            os.seteuid(user)
            os.setegid(group)
            os.fchdir(folder)
            os.close(folder)

    def run_with_input(self, text: str) -> str:
        """Run the program with ``text`` on its standard input and return what it prints.

        Raises subprocess.TimeoutExpired after CASE_TIMEOUT_S.
        """
        done = subprocess.run(
            [sys.executable, str(self.program)],
            input=text.encode(),
            stdout=subprocess.PIPE,
            timeout=CASE_TIMEOUT_S,
            check=False,
            **self._process_options(),
        )
        return done.stdout.decode(errors="replace")

    def start_server(self) -> CandidateClient:
        """Load the program in a process that :meth:`CandidateClient.close` ends."""
        library = self.folder / os.urandom(8).hex()
        package = library / "sandbox/tasks/code_runner"
        package.mkdir(parents=True)
        for folder in (library, library / "sandbox", package.parent, package):
            folder.chmod(0o755)
        for name in ("candidate_server.py", "value_codec.py"):
            _copy(Path(__file__).with_name(name), package / name)
        judge_end, candidate_end = socket.socketpair()
        with candidate_end:
            process = subprocess.Popen(
                [sys.executable, "-c", _START, str(library), str(self.program), str(candidate_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[candidate_end.fileno()],
                **self._process_options(),
            )
        return CandidateClient(judge_end, process)

    def _process_options(self) -> dict[str, Any]:
        return {
            "cwd": self.work,
            "env": {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.work), "LANG": "C.UTF-8"},
            "stderr": subprocess.DEVNULL,
            "start_new_session": True,
            **AS_NOBODY,
        }


def _copy(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())
    target.chmod(0o644)
