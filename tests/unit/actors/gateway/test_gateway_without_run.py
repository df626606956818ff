"""The example of docs/gateway.md, as it stands there.  If it fails, a reader's first lines raise."""

from __future__ import annotations

import re
import ssl
import textwrap
from typing import Any

import httpx

from actors.gateway.server import Gateway
from tests.support.actors.gateways import SAMPLING, FakeLimits
from tests.support.documented_commands import ROOT
from tests.support.fakes.fake_policy import FakeTokenizer, ScriptedEngine


async def test_the_documented_use_of_a_gateway_without_a_run_gives_segments() -> None:
    page = (ROOT / "docs/gateway.md").read_text()
    example = re.search(r"^    async with Gateway\(.*\n(?:    .*\n)+", page, re.MULTILINE)
    assert example is not None

    def load_tokenizer(path: str) -> FakeTokenizer:
        return FakeTokenizer()

    async def ask(url: str, key: str) -> None:
        body = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}
        async with httpx.AsyncClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as http:
            headers = {"authorization": f"Bearer {key}"}
            (await http.post(f"{url}/v1/chat/completions", json=body, headers=headers)).raise_for_status()

    names: dict[str, Any] = {
        "Gateway": Gateway,
        "load_tokenizer": load_tokenizer,
        "path": "",
        "router": ScriptedEngine(["hi\x01"]),
        "limits": FakeLimits(),
        "sampling": SAMPLING,
        "run_harness": ask,
    }
    body = textwrap.indent(textwrap.dedent(example[0]), "    ")
    exec(f"async def use():\n{body}    return segments\n", names)  # noqa: S102  the page's own code
    (segment,) = await names["use"]()
    assert segment.loss_mask.sum() == len("hi\x01")
