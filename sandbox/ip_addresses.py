"""Kinds of IP addresses, by what a connection to one leads to. Pure.

The lists are explicit: what the standard library calls global also contains site-local and multicast addresses, and
forms of IPv6 in which an IPv4 address is embedded. Sources: IANA's special-purpose address registries, RFC 6890.
"""

from __future__ import annotations

import ipaddress
import socket
from enum import StrEnum

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class AddressKind(StrEnum):
    """What an address leads to; the value completes the sentence "it is …"."""

    PUBLIC = "a public address"
    PRIVATE = "a private address"
    LOOPBACK = "a loopback address"
    UNSPECIFIED = "the unspecified address"
    LINK_LOCAL = "a link-local address"
    SITE_LOCAL = "a site-local address"
    MULTICAST = "a multicast address"
    METADATA = "a cloud's metadata service"
    EMBEDDED = "an IPv4 address embedded in IPv6"
    RESERVED = "a reserved address"


_KINDS = tuple(
    (ipaddress.ip_network(network), kind)
    for kind, networks in {
        AddressKind.METADATA: "100.100.100.200 168.63.129.16 192.0.0.192 169.254.169.254 fd00:ec2::/32 fd20:ce::254",
        AddressKind.LOOPBACK: "127.0.0.0/8 ::1",
        AddressKind.UNSPECIFIED: "0.0.0.0/8 ::",
        AddressKind.LINK_LOCAL: "169.254.0.0/16 fe80::/10",
        AddressKind.SITE_LOCAL: "fec0::/10",
        AddressKind.MULTICAST: "224.0.0.0/4 ff00::/8",
        # IPv4-compatible, translated (SIIT), local NAT64, Teredo, 6to4 and its relays
        AddressKind.EMBEDDED: "::/96 ::ffff:0:0:0/96 64:ff9b:1::/48 2001::/32 2002::/16 192.88.99.0/24",
        AddressKind.RESERVED: "192.0.0.0/24 240.0.0.0/4",
        AddressKind.PRIVATE: "10.0.0.0/8 100.64.0.0/10 172.16.0.0/12 192.168.0.0/16 198.18.0.0/15 fc00::/7 "
        "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
    }.items()
    for network in networks.split()
)
_UNICAST_IPV6 = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_ISATAP, _ISATAP_MASK = 0x0000_5EFE, 0xFDFF_FFFF


def parse_ip_address(host: str) -> IpAddress | None:
    """Return the address if a host is written as one, also like ``127.1`` or ``0x7f000001``; None for a name.

    An IPv4 address that IPv6 only carries (IPv4-mapped, NAT64) is returned as itself.
    """
    text = host.strip("[]").partition("%")[0]
    try:
        return _unwrap(ipaddress.ip_address(text))
    except ValueError:
        pass
    try:
        return None if text.split() != [text] else ipaddress.IPv4Address(socket.inet_aton(text))
    except (OSError, ValueError):  # ValueError: a NUL byte, or what is not ASCII
        return None


def classify_address(address: IpAddress) -> AddressKind:
    """Return what an address of :func:`parse_ip_address` leads to."""
    for network, kind in _KINDS:
        if address in network:
            return kind
    if isinstance(address, ipaddress.IPv6Address):
        if int(address) >> 32 & _ISATAP_MASK == _ISATAP:
            return AddressKind.EMBEDDED
        if address not in _UNICAST_IPV6:
            return AddressKind.RESERVED
    return AddressKind.PUBLIC if address.is_global else AddressKind.RESERVED


def parse_ip_network(text: str) -> IpNetwork | None:
    """Return a range of addresses written like ``192.0.2.0/24``; None for anything else, one whose address has bits
    beyond its prefix included."""
    try:
        return ipaddress.ip_network(text) if "/" in text and "%" not in text else None
    except ValueError:
        return None


def classify_network(network: IpNetwork) -> AddressKind:
    """Return what every address of a range leads to; public where some may be."""
    for known, kind in _KINDS:
        if is_within(network, known):
            return kind
    if isinstance(network, ipaddress.IPv6Network) and not network.overlaps(_UNICAST_IPV6):
        return AddressKind.RESERVED
    return AddressKind.PUBLIC


def is_within(inner: IpNetwork, outer: IpNetwork) -> bool:
    """Return whether every address of ``inner`` is one of ``outer``."""
    if isinstance(inner, ipaddress.IPv4Network):
        return isinstance(outer, ipaddress.IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, ipaddress.IPv6Network) and inner.subnet_of(outer)


def _unwrap(address: IpAddress) -> IpAddress:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address
