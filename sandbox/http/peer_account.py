"""Finds the account of this machine that holds the other end of a TCP connection on loopback, by asking the kernel
(sock_diag(7), inet_diag.h)."""

from __future__ import annotations

import socket
from struct import Struct

_SOCK_DIAG = 4
"""NETLINK_SOCK_DIAG"""
_BY_FAMILY = 20
"""SOCK_DIAG_BY_FAMILY: type of the request, and of an answer that is no error."""
_HEADER = Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence number, port."""
_REQUEST = Struct("=BBBxI")
"""Start of inet_diag_req_v2: family, protocol, extensions, states."""
_PORTS = Struct("!HH")
_REST = Struct("=I8s")
"""End of inet_diag_sockid: any interface, any cookie."""
_OWNER = Struct("=II")
"""Account and inode of the socket."""
_OWNER_AT = 80
"""Where they are in an answer: after its header and 64 bytes of inet_diag_msg."""
_ALL_STATES = 0xFFFFFFFF
_ANY = (0, b"\xff" * 8)
_WAIT_S = 1.0


def find_peer_account(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the user id that holds the socket at ``peer``, whose other end is at ``own``.

    None if no process has it any more, if the kernel cannot be asked, or if ``peer`` is on another machine.
    """
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    addresses = b"".join(socket.inet_pton(family, host).ljust(16, b"\0") for host, _ in (peer, own))
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES)
    request += _PORTS.pack(peer[1], own[1]) + addresses + _REST.pack(*_ANY)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
            kernel.settimeout(_WAIT_S)
            kernel.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, 1, 0, 0) + request)
            answer = kernel.recv(4096)
    except OSError:
        return None
    if _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    account, inode = _OWNER.unpack_from(answer, _OWNER_AT)
    return account if inode else None
