"""Restriction of torch's rendezvous to one address.

torch's TCPStore listens on every address of its host, without authentication, whichever address it is given
(pytorch/pytorch, ``torch/csrc/distributed/c10d/socket.cpp``).
"""

from __future__ import annotations

import functools
import socket
import sys
from typing import Any

_BACKLOG = 2048
"""Backlog of torch's own socket."""


def listen_at(host: str, port: int) -> socket.socket:
    """Listen on one address of this host.  Raises OSError if the address is not local or the port is taken."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)


@functools.cache
def restrict_tcp_stores_to_address() -> None:
    """Make every later TCPStore of this process, those of ``init_process_group`` and SGLang included, listen on its own
    address only.  Call it before importing sglang, which imports the class by name."""
    import torch.distributed

    untyped: Any = torch.distributed
    everywhere: Any = untyped.TCPStore

    class StoreAtAddress(everywhere):
        def __init__(
            self,
            host_name: str,
            port: int,
            world_size: int | None = None,
            is_master: bool = False,
            *rest: Any,
            **more: Any,
        ) -> None:
            if is_master and more.get("master_listen_fd") is None:
                listening = listen_at(host_name, port)
                port = int(listening.getsockname()[1])
                more["master_listen_fd"] = listening.detach()  # the store closes it
            everywhere.__init__(self, host_name, port, world_size, is_master, *rest, **more)

    untyped.TCPStore = sys.modules["torch.distributed.rendezvous"].__dict__["TCPStore"] = StoreAtAddress
