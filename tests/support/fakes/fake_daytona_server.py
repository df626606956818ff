"""Daytona's published API on loopback, over sandboxes that a test gives it: what it reads and answers are the models of
Daytona's own client packages, so a request or a reply that these do not know fails its test."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import daytona_api_client_async.models as api
import daytona_toolbox_api_client_async.models as toolbox
from aiohttp import MultipartWriter, web

from tests.support.fakes.fake_daytona import SandboxBackend

KEY = "fake-key"
_DAEMON = "DAYTONA_DAEMON"


@dataclass
class FakeDaytonaServer:
    make_backend: Callable[[api.CreateSandbox], Awaitable[SandboxBackend]]
    url: str = ""
    created: list[api.CreateSandbox] = field(default_factory=list[api.CreateSandbox])
    settings: list[api.UpdateSandboxNetworkSettings] = field(default_factory=list[api.UpdateSandboxNetworkSettings])
    renewed: list[str] = field(default_factory=list[str])
    failures: list[int] = field(default_factory=list[int])
    """Statuses with which the next requests to sandboxes fail, one each."""
    _backends: dict[str, SandboxBackend] = field(default_factory=dict[str, SandboxBackend])

    def routes(self) -> list[web.RouteDef]:
        box, inside = "/api/sandbox/{id}", "/toolbox/{id}"
        return [
            web.post("/api/sandbox", self.create),
            web.get(box, self.describe),
            web.delete(box, self.delete),
            web.post(f"{box}/last-activity", self.renew),
            web.post(f"{box}/network-settings", self.set_network),
            web.post(f"{inside}/process/execute", self.execute),
            web.post(f"{inside}/files/bulk-upload", self.upload),
            web.post(f"{inside}/files/bulk-download", self.download),
        ]

    def _answer(self, name: str, state: api.SandboxState) -> web.Response:
        asked = self.created[int(name.rpartition("-")[2])]
        sandbox = api.Sandbox(
            id=name,
            organization_id="org",
            name=name,
            user=asked.user or "daytona",
            env=asked.env or {},
            labels=asked.labels or {},
            public=bool(asked.public),
            network_block_all=bool(asked.network_block_all),
            kvm=False,
            target=asked.target or "us",
            cpu=asked.cpu or 1,
            gpu=0,
            memory=asked.memory or 1,
            disk=asked.disk or 3,
            state=state,
            toolbox_proxy_url=f"{self.url}/toolbox",
        )
        return web.json_response(sandbox.to_dict())

    def _backend(self, request: web.Request) -> SandboxBackend:
        if self.failures:
            raise _error(self.failures.pop(0), "a failure that a test asked for")
        if (found := self._backends.get(request.match_info["id"])) is None:
            raise _error(404, f"Sandbox with ID or name {request.match_info['id']} not found")
        return found

    async def create(self, request: web.Request) -> web.Response:
        if request.headers["Authorization"] != f"Bearer {KEY}":
            raise _error(401, "Invalid credentials")
        asked = api.CreateSandbox.from_json(await request.text())
        assert asked is not None
        assert not asked.additional_properties, "the API has no such field"
        name = f"fake-{len(self.created)}"
        self.created.append(asked)
        self._backends[name] = await self.make_backend(asked)
        return self._answer(name, api.SandboxState.CREATING)

    async def describe(self, request: web.Request) -> web.Response:
        self._backend(request)
        return self._answer(request.match_info["id"], api.SandboxState.STARTED)

    async def delete(self, request: web.Request) -> web.Response:
        await self._backend(request).remove()
        del self._backends[request.match_info["id"]]
        return self._answer(request.match_info["id"], api.SandboxState.DESTROYED)

    async def renew(self, request: web.Request) -> web.Response:
        self._backend(request)
        self.renewed.append(request.match_info["id"])
        return web.Response(status=201)

    async def set_network(self, request: web.Request) -> web.Response:
        self._backend(request)
        asked = api.UpdateSandboxNetworkSettings.from_json(await request.text())
        assert asked is not None
        self.settings.append(asked)
        return self._answer(request.match_info["id"], api.SandboxState.STARTED)

    async def execute(self, request: web.Request) -> web.Response:
        backend = self._backend(request)
        asked = toolbox.ExecuteRequest.from_json(await request.text())
        assert asked is not None
        code, output = await backend.run(asked.command, asked.cwd or "/")
        return web.json_response(toolbox.ExecuteResponse(exit_code=code, result=output).to_dict())

    async def upload(self, request: web.Request) -> web.Response:
        backend, form = self._backend(request), await request.post()
        files: dict[str, bytes] = {}
        for name, value in form.items():
            if name.endswith(".file"):
                assert isinstance(value, web.FileField)
                files[str(form[name.replace(".file", ".path")])] = value.file.read()
        await backend.write_files(files)
        return web.Response()

    async def download(self, request: web.Request) -> web.StreamResponse:
        backend = self._backend(request)
        asked = toolbox.FilesDownloadRequest.from_json(await request.text())
        assert asked is not None
        writer = MultipartWriter("form-data")
        for path in asked.paths:
            try:
                part, kind = writer.append(io.BytesIO(await backend.read_file(path))), "file"
            except FileNotFoundError as error:
                why = {"message": str(error), "statusCode": 404, "code": "FILE_NOT_FOUND", "source": _DAEMON}
                part, kind = writer.append(json.dumps(why), {"Content-Type": "application/json"}), "error"
            part.set_content_disposition("form-data", quote_fields=False, name=kind, filename=path)
        return web.Response(body=writer, headers={"Content-Type": writer.content_type})


def _error(status: int, message: str) -> web.HTTPException:
    """Return an error in Daytona's envelope."""
    body = json.dumps({"statusCode": status, "message": message, "source": "DAYTONA_API"})
    error = web.HTTPException(text=body, content_type="application/json")
    error.set_status(status)
    return error


@asynccontextmanager
async def serve_daytona(
    make_backend: Callable[[api.CreateSandbox], Awaitable[SandboxBackend]],
) -> AsyncGenerator[FakeDaytonaServer]:
    """Serve the API on loopback."""
    server = FakeDaytonaServer(make_backend)
    app = web.Application(client_max_size=128 << 20)
    app.add_routes(server.routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}"
        yield server
    finally:
        await runner.cleanup()
