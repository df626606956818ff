"""Headless Chromium over the DevTools protocol, as far as a test of the page needs it: go, look, click, type, wait.

Waits are for conditions and end at a deadline that only a stuck page meets.  What the page logs as an error, what it
throws, and what it asks of anybody but ``allowed``, is kept, and a test ends by looking at it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

DEADLINE_S = 60.0
_LOOK_S = 0.05
_LOADS = 5
"""Maximum number of times that a page is loaded."""
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--mute-audio"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-port=0", "--disable-dev-shm-usage"),
)
_KEYS = {
    " ": ("Space", 32),
    "Enter": ("Enter", 13),
    "Escape": ("Escape", 27),
    "ArrowRight": ("ArrowRight", 39),
    "Tab": ("Tab", 9),
}


def chromium() -> str | None:
    """Debian's; None where there is none."""
    return shutil.which("chromium")


@dataclass
class Page:
    """One tab."""

    socket: aiohttp.ClientWebSocketResponse
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _count: int = 0
    _pending: dict[int, asyncio.Future[Any]] = field(default_factory=dict)

    async def listen(self) -> None:
        async for message in self.socket:
            message_body = json.loads(message.data)
            if "id" in message_body:
                answer = self._pending.pop(message_body["id"])
                if not answer.done():
                    answer.set_result(message_body)
            else:
                self._record_event(message_body["method"], message_body["params"])

    def _record_event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    async def send(self, method: str, **params: object) -> dict[str, Any]:
        self._count += 1
        answer = self._pending[self._count] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": self._count, "method": method, "params": params})
        async with asyncio.timeout(DEADLINE_S):
            response = await answer
        assert "error" not in response, response
        return response["result"]

    async def enable_domains(self) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.send(f"{domain}.enable")

    async def open(self, url: str) -> None:
        """Load the page; again when Chromium has ended its requests because this machine got or lost a network."""
        earlier = len(self.errors)
        for _ in range(_LOADS):
            del self.errors[earlier:]
            await self.send("Page.navigate", url=url)
            await self.wait_until("document.readyState === 'complete'")
            if not any("ERR_NETWORK_CHANGED" in error for error in self.errors[earlier:]):
                return

    async def evaluate(self, expression: str) -> Any:
        result = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, (expression, result["exceptionDetails"])
        return result["result"].get("value")

    async def wait_until(self, expression: str) -> None:
        """Wait until the expression is true of the page."""
        await self.wait_for_value(f"Boolean({expression})")

    async def wait_for_value(self, expression: str) -> Any:
        """Return the expression's value once it can be evaluated and is neither null, false, 0 nor empty."""
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            with suppress(AssertionError):  # between two pages there is nothing to ask
                if value := await self.evaluate(
                    f"(() => {{ try {{ return {expression} }} catch {{ return false }} }})()"
                ):
                    return value
            await asyncio.sleep(_LOOK_S)
        page_text = await self.evaluate("document.body.innerText.slice(0, 1500)")
        raise AssertionError(f"never true: {expression}\nerrors: {self.errors}\nthe page says:\n{page_text}")

    async def wait_for_text(self, text: str) -> None:
        await self.wait_until(f"document.body.innerText.includes({json.dumps(text)})")

    async def click(self, selector: str, text: str = "") -> None:
        """Click the middle of the first matching element with this text once it has stopped moving."""
        fits = f"e.innerText.includes({json.dumps(text)}) && e.getClientRects().length"
        has = f"[...document.querySelectorAll({json.dumps(selector)})].find(e => {fits})"
        middle = (
            f"(() => {{ const e = {has}; e.scrollIntoView({{block: 'center', inline: 'nearest'}});"
            "const r = e.getClientRects()[0];"
            "return [r.left + r.width / 2, r.top + r.height / 2] })()"
        )
        before, at = None, await self.wait_for_value(middle)
        while at != before:
            await asyncio.sleep(_LOOK_S)
            before, at = at, await self.wait_for_value(middle)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            await self.send("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    async def press(self, keys: str) -> None:
        code, number = _KEYS.get(keys, ("", 0))
        text = {} if keys in _KEYS and keys not in {" ", "Enter"} else {"text": "\r" if keys == "Enter" else keys}
        key = {"key": keys, "code": code, "windowsVirtualKeyCode": number}
        await self.send("Input.dispatchKeyEvent", type="keyDown", **key, **text)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **key)

    async def type(self, text: str) -> None:
        await self.send("Input.insertText", text=text)

    async def set_viewport(self, width: int, height: int) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    async def set_color_scheme(self, name: str) -> None:
        features = [
            {"name": "prefers-color-scheme", "value": name},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def set_offline(self, *, offline: bool) -> None:
        await self.send(
            "Network.emulateNetworkConditions", offline=offline, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )

    async def screenshot(self) -> bytes:
        """PNG of what is on the screen."""
        return base64.b64decode((await self.send("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def open_page(profile: Path) -> AsyncIterator[Page]:
    """A page of a browser of its own, which ends with this."""
    process = _start_chromium(profile)
    try:
        port = await _wait_for_port(profile / "DevToolsActivePort", process)
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/json") as answer:
            (target,) = [each for each in await answer.json() if each["type"] == "page"]
            async with (
                session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket,
                asyncio.TaskGroup() as group,
            ):
                page = Page(socket)
                listening = group.create_task(page.listen())
                await page.enable_domains()
                yield page
                listening.cancel()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _start_chromium(profile: Path) -> subprocess.Popen[bytes]:
    program = chromium()
    assert program is not None
    with (profile.parent / "chromium.log").open("wb") as log:
        command = [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        return subprocess.Popen(command, stderr=log, stdout=log, start_new_session=True)


async def _wait_for_port(file: Path, process: subprocess.Popen[bytes]) -> int:
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until and process.poll() is None:
        if lines := _lines(file):
            return int(lines[0])
        await asyncio.sleep(_LOOK_S)
    raise AssertionError(f"Chromium did not start: {file.parent.parent / 'chromium.log'}")


def _lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []
