"""Daytona's SDK without Daytona: its names and signatures, over sandboxes that a test gives it.

``FAKE`` replaces the package ``daytona``; ``test_daytona.py`` compares it with that package where it is installed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self


class DaytonaError(Exception): ...


class DaytonaNotFoundError(DaytonaError): ...


class DaytonaFileNotFoundError(DaytonaNotFoundError): ...


class DaytonaGoneError(DaytonaError): ...


class DaytonaConnectionError(DaytonaError): ...


class DaytonaTimeoutError(DaytonaError): ...


class DaytonaRateLimitError(DaytonaError): ...


class DaytonaBadGatewayError(DaytonaError): ...


class DaytonaServiceUnavailableError(DaytonaError): ...


class SandboxBackend(Protocol):
    """Runs the commands and holds the files of a fake sandbox."""

    async def run(self, command: str, cwd: str) -> tuple[int, str]: ...

    async def write_files(self, files: dict[str, bytes]) -> None: ...

    async def read_file(self, path: str) -> bytes: ...

    async def remove(self) -> None: ...


@dataclass
class DaytonaConfig:
    api_url: str | None = None
    target: str | None = None


@dataclass
class Resources:
    cpu: int | None = None
    memory: int | None = None
    disk: int | None = None


@dataclass
class FileUpload:
    source: bytes | str
    destination: str

    def contents(self) -> bytes:
        return self.source if isinstance(self.source, bytes) else Path(self.source).read_bytes()


@dataclass(kw_only=True)
class CreateSandboxFromImageParams:
    image: Any
    os_user: str | None = None
    env_vars: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    resources: Resources | None = None
    auto_stop_interval: int | None = None
    ttl_minutes: int | None = None
    ephemeral: bool | None = None
    network_block_all: bool | None = None
    domain_allow_list: str | None = None


@dataclass
class Image:
    dockerfile: str = ""

    @staticmethod
    def from_dockerfile(path: str | Path) -> Image:
        return Image(Path(path).read_text())


@dataclass
class ExecuteResponse:
    exit_code: int
    result: str


class AsyncProcess:
    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box

    async def exec(
        self, command: str, cwd: str | None = None, env: dict[str, str] | None = None, timeout: int | None = None
    ) -> ExecuteResponse:
        async with asyncio.timeout(timeout):
            return ExecuteResponse(*await self._box.call_backend(lambda backend: backend.run(command, cwd or "/")))


class AsyncFileSystem:
    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box

    async def upload_files(self, files: list[FileUpload], timeout: int = 1800) -> None:
        contents = {each.destination: each.contents() for each in files}
        await self._box.call_backend(lambda backend: backend.write_files(contents))

    async def download_file(self, *args: Any) -> bytes:
        return await self._box.call_backend(lambda backend: backend.read_file(args[0]))


class AsyncSandbox:
    def __init__(self, client: AsyncDaytona, backend: SandboxBackend, params: CreateSandboxFromImageParams) -> None:
        self.id = f"fake-{next(client.numbers)}"
        self.client, self.backend, self.params = client, backend, params
        self.process, self.fs = AsyncProcess(self), AsyncFileSystem(self)
        self.deleted = False
        self.activity_refreshes = 0
        self.errors: list[Exception] = []
        """Raised by the next calls, one each."""

    async def call_backend(self, do: Callable[[SandboxBackend], Awaitable[Any]]) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        if self.deleted:
            raise DaytonaNotFoundError(f"Sandbox with ID {self.id} not found")
        return await do(self.backend)

    async def refresh_activity(self, request_timeout: float | None = None) -> None:
        self.activity_refreshes += 1

    async def update_network_settings(
        self,
        *,
        network_block_all: bool | None = None,
        network_allow_list: str | None = None,
        domain_allow_list: str | None = None,
        request_timeout: float | None = None,
    ) -> None:
        self.params.network_block_all, self.params.domain_allow_list = network_block_all, domain_allow_list

    async def delete(self, timeout: float | None = 60, wait: bool = False) -> None:
        if not self.deleted:
            self.deleted = True
            await self.backend.remove()


class AsyncDaytona:
    def __init__(self, config: DaytonaConfig | None = None) -> None:
        self.config = config
        self.numbers = itertools.count()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None: ...

    async def create(
        self,
        params: CreateSandboxFromImageParams | None = None,
        *,
        timeout: float = 60,
        on_snapshot_create_logs: Callable[[str], None] | None = None,
    ) -> AsyncSandbox:
        raise NotImplementedError


@dataclass
class FakeSdk:
    """The package, with sandboxes that ``make`` makes."""

    make_backend: Callable[[CreateSandboxFromImageParams], Awaitable[SandboxBackend]]
    sandboxes: list[AsyncSandbox] = field(default_factory=list)
    create_error: Exception | None = None
    """Raised in place of a sandbox."""

    DaytonaConfig: Any = DaytonaConfig
    CreateSandboxFromImageParams: Any = CreateSandboxFromImageParams
    Resources: Any = Resources
    FileUpload: Any = FileUpload
    Image: Any = Image
    DaytonaError: Any = DaytonaError
    DaytonaNotFoundError: Any = DaytonaNotFoundError
    DaytonaFileNotFoundError: Any = DaytonaFileNotFoundError
    DaytonaGoneError: Any = DaytonaGoneError
    DaytonaConnectionError: Any = DaytonaConnectionError
    DaytonaTimeoutError: Any = DaytonaTimeoutError
    DaytonaRateLimitError: Any = DaytonaRateLimitError
    DaytonaBadGatewayError: Any = DaytonaBadGatewayError
    DaytonaServiceUnavailableError: Any = DaytonaServiceUnavailableError

    def AsyncDaytona(self, config: DaytonaConfig | None = None) -> AsyncDaytona:
        sdk = self

        class Client(AsyncDaytona):
            async def create(
                self,
                params: CreateSandboxFromImageParams | None = None,
                *,
                timeout: float = 60,
                on_snapshot_create_logs: Callable[[str], None] | None = None,
            ) -> AsyncSandbox:
                if sdk.create_error is not None:
                    raise sdk.create_error
                assert params is not None
                box = AsyncSandbox(self, await sdk.make_backend(params), params)
                sdk.sandboxes.append(box)
                return box

        return Client(config)
