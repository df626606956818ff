"""One Daytona sandbox: calls of ``shell_driver.sh`` in it, file transfers, and the meaning of their failures.

Every call is idempotent, so it is tried again a few times if its connection fails or the service is busy. A sandbox
that Daytona no longer knows has vanished; a service that does not answer is an infrastructure failure.
"""

from __future__ import annotations

import asyncio
import errno
import math
import secrets
import shlex
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from sandbox.errors import SandboxLost, SandboxVanished
from sandbox.providers.daytona.sdk import DaytonaSdk, DaytonaSdkSandbox

LONGSHORE_FOLDER = "/.longshore"
"""Folder of longshore in the sandbox, for shells' state and files being transferred."""
_SCRIPT = (Path(__file__).parent / "shell_driver.sh").read_text(encoding="utf-8")
_TIMES, AGAIN_S = 3, 1.0
_SPARE_S = 60.0
"""Seconds beyond the wait of the call itself."""
_FILES_S = 600
T = TypeVar("T")


class DaytonaCallReply(NamedTuple):
    """The result of a call."""

    code: int
    words: tuple[str, ...]
    """Words of the answer line."""


class DaytonaHandle:
    """Calls to one sandbox."""

    def __init__(self, box: DaytonaSdkSandbox, sdk: DaytonaSdk) -> None:
        self._box, self._sdk = box, sdk
        self.id = box.id
        self.lost: SandboxLost | None = None

    async def call(self, verb: str, *arguments: str, wait_s: float = 0.0) -> DaytonaCallReply:
        """Call a verb of the script, which may itself wait for ``wait_s``. Raises SandboxLost."""
        bash = ("bash", "--noprofile", "--norc", "-c", _SCRIPT, "driver")
        return await self.run_program(*bash, verb, *arguments, wait_s=wait_s)

    async def run_program(self, *words: str, wait_s: float = 0.0) -> DaytonaCallReply:
        """Run a program that answers as the script does, and may be run twice. Raises SandboxLost."""
        command = shlex.join(words)
        limit_s = math.ceil(wait_s + _SPARE_S)
        done = await self._with_retries(lambda: self._box.process.exec(command, "/", None, limit_s), limit_s)
        answer = next((line for line in done.result.split("\n") if line.startswith("@sbx ")), "")
        return DaytonaCallReply(done.exit_code, tuple(answer.split()[1:]))

    async def upload(self, files: Sequence[tuple[str, bytes | str]]) -> None:
        """Upload files by path: bytes, or the path of a file here. Raises SandboxLost."""
        made = [self._sdk.FileUpload(source=data, destination=path) for path, data in files]
        await self._with_retries(lambda: self._box.fs.upload_files(made, _FILES_S), _FILES_S)

    async def download(self, path: str) -> bytes:
        """Download a file. Raises SandboxLost, and OSError if the agent has removed it."""
        return await self._with_retries(lambda: self._box.fs.download_file(path, _FILES_S), _FILES_S)

    async def allow(self, block_all: bool, hosts: str) -> None:
        """Set the hosts that the sandbox may reach from now on. Raises SandboxLost."""
        await self._with_retries(
            lambda: self._box.update_network_settings(
                network_block_all=block_all, domain_allow_list=None if block_all else hosts
            ),
            _FILES_S,
        )

    async def renew(self) -> None:
        """Restart the sandbox's idle time. Raises SandboxLost."""
        await self._with_retries(self._box.refresh_activity, _FILES_S)

    async def delete(self) -> None:
        """Delete the sandbox. Raises SandboxLost."""
        await self._with_retries(lambda: self._box.delete(_FILES_S), _FILES_S)

    @staticmethod
    def staging_path() -> str:
        """Return a new path for a file being transferred."""
        return f"{LONGSHORE_FOLDER}/{secrets.token_hex(8)}"

    async def _with_retries(self, do: Callable[[], Awaitable[T]], within_s: float) -> T:
        sdk = self._sdk
        transient = (
            sdk.DaytonaConnectionError,
            sdk.DaytonaTimeoutError,
            sdk.DaytonaRateLimitError,
            sdk.DaytonaBadGatewayError,
            sdk.DaytonaServiceUnavailableError,
            TimeoutError,
        )
        for attempt in range(_TIMES):
            if self.lost is not None:
                raise self.lost
            try:
                async with asyncio.timeout(within_s + _SPARE_S):
                    return await do()
            except sdk.DaytonaFileNotFoundError as error:
                raise OSError(errno.EIO, str(error)) from error
            except (sdk.DaytonaNotFoundError, sdk.DaytonaGoneError) as error:
                self.lost = SandboxVanished(f"Daytona no longer has sandbox {self.id}: {error}")
                raise self.lost from error
            except transient as error:
                if attempt + 1 == _TIMES:
                    raise SandboxLost(f"Daytona does not answer for sandbox {self.id}: {error}") from error
            except sdk.DaytonaError as error:
                raise SandboxLost(f"Daytona failed sandbox {self.id}: {error}") from error
            await asyncio.sleep(AGAIN_S)
        raise AssertionError
