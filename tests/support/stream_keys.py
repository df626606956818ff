"""The keys of the tests' streams: nothing goes over TCP without."""

from __future__ import annotations

from protocol.stream import make_run_keys

_KEYS = make_run_keys(["sender"])
RECEIVER_KEYS, SENDER_KEYS = _KEYS.server, _KEYS.clients["sender"]
