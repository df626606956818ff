"""An image registry on the loopback device that has one image and asks for a password."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import encode_basic_auth, web

from tests.support.network.aiohttp_servers import serve_on_loopback

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def digest_of(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


@dataclass
class FakeRegistry:
    """Serves an image with one layer, whose only file has ``content``, to the user ``ann`` with password ``hers``."""

    content: bytes
    address: str = ""
    refused: int = 0
    """Number of requests without the right password."""

    def __post_init__(self) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            entry = tarfile.TarInfo("hello")
            entry.size = len(self.content)
            tar.addfile(entry, io.BytesIO(self.content))
        layer = gzip.compress(packed.getvalue(), mtime=0)
        root = {"type": "layers", "diff_ids": [digest_of(packed.getvalue())]}
        config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": root}).encode()
        self._blobs = {digest_of(each): each for each in (config, layer)}
        described = [
            {"mediaType": kind, "size": len(blob), "digest": digest_of(blob)}
            for kind, blob in ((_CONFIG, config), (_LAYER, layer))
        ]
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": described[0], "layers": described[1:]}
        self._manifest = json.dumps(manifest).encode()

    async def answer(self, request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "")
        if given != encode_basic_auth("ann", "hers"):
            self.refused += 1
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="fake"'})
        what, _, last = request.path.rpartition("/")
        if what.endswith("/manifests"):
            headers = {"Content-Type": _MANIFEST, "Docker-Content-Digest": digest_of(self._manifest)}
            return web.Response(body=self._manifest, headers=headers)
        if what.endswith("/blobs"):
            return web.Response(body=self._blobs[last], headers={"Docker-Content-Digest": last})
        return web.json_response({})

    @asynccontextmanager
    async def served(self) -> AsyncGenerator[FakeRegistry]:
        app = web.Application()
        app.router.add_get("/v2/{rest:.*}", self.answer)
        async with serve_on_loopback(app) as port:
            self.address = f"127.0.0.1:{port}"
            yield self
