"""The part of Daytona's SDK that is used here, typed, with the SDK's own names and signatures.

Only this module imports the package; where it is installed, a test compares it with this module and the tests' fake.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, cast

from protocol.errors import UserError

PACKAGE = "daytona"


class DaytonaExecResponse(Protocol):
    @property
    def exit_code(self) -> int: ...

    @property
    def result(self) -> str: ...


class DaytonaProcess(Protocol):
    async def exec(
        self, command: str, cwd: str | None = None, env: dict[str, str] | None = None, timeout: int | None = None
    ) -> DaytonaExecResponse: ...


class DaytonaFileSystem(Protocol):
    async def upload_files(self, files: list[Any], timeout: int = 1800) -> None: ...

    async def download_file(self, remote_path: str, timeout: int = 1800, /) -> bytes: ...


class DaytonaSdkSandbox(Protocol):
    """``AsyncSandbox`` of the SDK."""

    id: str

    @property
    def process(self) -> DaytonaProcess: ...

    @property
    def fs(self) -> DaytonaFileSystem: ...

    async def refresh_activity(self) -> None: ...

    async def update_network_settings(
        self, *, network_block_all: bool | None = None, domain_allow_list: str | None = None
    ) -> None: ...

    async def delete(self, timeout: float | None = 60) -> None: ...


class DaytonaClient(Protocol):
    """``AsyncDaytona`` of the SDK."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def create(self, params: Any, *, timeout: float = 60) -> DaytonaSdkSandbox: ...


class _Config(Protocol):
    def __call__(self, *, api_url: str | None = None, target: str | None = None) -> Any: ...


class _Params(Protocol):
    def __call__(
        self,
        *,
        image: Any,
        os_user: str,
        env_vars: dict[str, str],
        labels: dict[str, str],
        resources: Any,
        auto_stop_interval: int,
        ttl_minutes: int,
        ephemeral: bool,
        network_block_all: bool,
        domain_allow_list: str | None,
    ) -> Any: ...


class _Resources(Protocol):
    def __call__(self, *, cpu: int, memory: int, disk: int) -> Any: ...


class _Upload(Protocol):
    def __call__(self, source: bytes | str, destination: str) -> Any: ...


class _Client(Protocol):
    def __call__(self, config: Any = None) -> DaytonaClient: ...


class _Image(Protocol):
    def from_dockerfile(self, path: str | Path) -> Any: ...


class DaytonaSdk(Protocol):
    """The package ``daytona``."""

    AsyncDaytona: _Client
    DaytonaConfig: _Config
    CreateSandboxFromImageParams: _Params
    Resources: _Resources
    FileUpload: _Upload
    Image: _Image
    DaytonaError: type[Exception]
    DaytonaNotFoundError: type[Exception]
    DaytonaFileNotFoundError: type[Exception]
    """A kind of DaytonaNotFoundError."""
    DaytonaGoneError: type[Exception]
    DaytonaConnectionError: type[Exception]
    DaytonaTimeoutError: type[Exception]
    DaytonaRateLimitError: type[Exception]
    DaytonaBadGatewayError: type[Exception]
    DaytonaServiceUnavailableError: type[Exception]


def load_sdk() -> DaytonaSdk:
    """Import the package. Raises UserError where it is not installed."""
    try:
        return cast("DaytonaSdk", importlib.import_module(PACKAGE))
    except ImportError as error:
        raise UserError(
            "sandbox.provider = 'daytona' needs Daytona's SDK, which is not installed: pip install "
            "'longshore[daytona]' into this environment, on each machine with workers"
        ) from error
