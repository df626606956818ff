"""Process groups of torch that strangers cannot reach.

torch's TCPStore listens on every address of its host, without authentication, whichever address it is given
(pytorch/pytorch, ``torch/csrc/distributed/c10d/socket.cpp``). A group over gloo listens for its lifetime, and keeps
every connection that anybody makes there until the process has no descriptors left and is aborted (pytorch/gloo,
``gloo/transport/tcp/listener.cc``).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BACKLOG = 2048
"""Backlog of torch's own socket."""
_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)
"""A filter of one instruction (``struct sock_filter``): no byte of a packet passes."""
_OPEN_FILES = Path("/proc/self/fd")


def listen_at(host: str, port: int) -> socket.socket:
    """Listen on one address of this host.  Raises OSError if the address is not local or the port is taken."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)


@functools.cache
def guard_process_groups() -> None:
    """Guard every later process group of this process, those of ``init_process_group`` and SGLang included.

    A TCPStore listens on its own address only, and a group of one rank has none. A group over gloo accepts no
    connection once its ranks are connected. Call it before importing sglang, which imports the classes by name.
    """
    import torch.distributed

    untyped: Any = torch.distributed
    everywhere: Any = untyped.TCPStore
    join: Any = untyped.ProcessGroupGloo.__init__

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

    def join_closed(self: Any, *arguments: Any, **more: Any) -> None:
        before = {inode for inode, _ in _listening_sockets()}
        join(self, *arguments, **more)
        for inode, listener in _listening_sockets():
            if inode not in before:
                accept_nobody(listener)

    def make_store(*, world_size: int, **more: Any) -> Any:
        return untyped.HashStore() if world_size == 1 else StoreAtAddress(world_size=world_size, **more)

    untyped.TCPStore = StoreAtAddress
    untyped.ProcessGroupGloo.__init__ = join_closed
    sys.modules["torch.distributed.rendezvous"].__dict__["TCPStore"] = make_store


def accept_nobody(listener: socket.socket) -> None:
    """Let the kernel drop whatever is sent to a listening socket; connections that it has accepted stay."""
    instructions = ctypes.create_string_buffer(_DROP_ALL)
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(instructions)))


def _listening_sockets() -> Iterator[tuple[int, socket.socket]]:
    """Yield inode and duplicate, which is closed with the next, of each socket on which this process listens."""
    for entry in _OPEN_FILES.iterdir():
        with contextlib.suppress(OSError):
            found = entry.stat()
            if stat.S_ISSOCK(found.st_mode):
                with socket.socket(fileno=os.dup(int(entry.name))) as each:
                    if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        yield found.st_ino, each
