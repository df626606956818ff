"""Certificates are read as DER here, and used in TLS handshakes in memory."""

import re
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

TLS = Path("/app/tls")
OIDS = {
    "551d13": "basic",
    "551d0f": "usage",
    "551d25": "extended",
    "551d11": "names",
    "550403": "CN",
    "55040a": "O",
}
SHA256 = {"2a8648ce3d040302"}


def items(data):
    """(tag, content) of each DER value."""
    at, found = 0, []
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size > 127:
            count = size & 127
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        found.append((tag, data[at : at + size]))
        at += size
    return found


def pems(path):
    found = re.findall("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", path.read_text(), re.DOTALL)
    return [ssl.PEM_cert_to_DER_cert(each) for each in found]


class Certificate:
    def __init__(self, name):
        (self.der,) = pems(TLS / name)
        ((_, whole),) = items(self.der)
        (_, inner), (_, algorithm), _ = items(whole)
        self.algorithm = items(algorithm)[0][1].hex()
        fields = items(inner)
        assert fields[0][0] == 0xA0, "no version 3"
        self.serial = fields[1][1].hex()
        self.issuer, self.subject = self.name(fields[3][1]), self.name(fields[5][1])
        self.begin, self.end = (self.time(*each) for each in items(fields[4][1]))
        self.key = fields[6][1]
        extensions = next(content for tag, content in fields if tag == 0xA3)
        self.extensions = {}
        for _, each in items(items(extensions)[0][1]):
            oid, *critical, (_, value) = items(each)
            self.extensions[OIDS.get(oid[1].hex(), oid[1].hex())] = (bool(critical), value)

    @staticmethod
    def name(data):
        parts = [items(items(one)[0][1]) for _, one in items(data)]
        return [(OIDS.get(oid[1].hex()), text[1].decode()) for oid, text in parts]

    @staticmethod
    def time(tag, text):
        form = "%y%m%d%H%M%SZ" if tag == 0x17 else "%Y%m%d%H%M%SZ"
        return datetime.strptime(text.decode(), form).replace(tzinfo=UTC)


def handshake(host, chain=TLS / "fullchain.pem", trusted=TLS / "root.crt"):
    """Return whether a client that trusts ``trusted`` takes the server for ``host``."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain, "/app/server.key")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(trusted)
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(a, b, server_side=True), client.wrap_bio(b, a, server_hostname=host)]
    for _ in range(6):
        for each in list(ends):
            try:
                each.do_handshake()
                ends.remove(each)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError:
                return False
    return not ends


def test_a_client_trusts_the_server_by_its_names():
    for host in ("api.harbour.example", "north.ports.harbour.example", "10.20.0.5"):
        assert handshake(host), host
    for host in ("harbour.example", "a.b.ports.harbour.example", "ports.harbour.example", "10.20.0.6"):
        assert not handshake(host), host


def test_the_chain_is_needed_and_in_order():
    server, issuing = Certificate("server.crt"), Certificate("issuing.crt")
    assert pems(TLS / "fullchain.pem") == [server.der, issuing.der]
    assert handshake("api.harbour.example")
    assert not handshake("api.harbour.example", chain=TLS / "server.crt")


def test_subjects_and_serials():
    root, issuing, server = (Certificate(f"{name}.crt") for name in ("root", "issuing", "server"))
    assert root.subject == root.issuer == issuing.issuer == [("O", "Harbour"), ("CN", "Harbour Root")]
    assert issuing.subject == server.issuer == [("O", "Harbour"), ("CN", "Harbour Issuing")]
    assert server.subject == [("CN", "api.harbour.example")]
    assert len({root.serial, issuing.serial, server.serial}) == 3
    assert {root.algorithm, issuing.algorithm, server.algorithm} == SHA256


def test_authorities():
    for name, length in (("root", "01"), ("issuing", "00")):
        found = Certificate(f"{name}.crt").extensions
        assert found["basic"] == (True, bytes.fromhex(f"30060101ff0201{length}")), name
        assert found["usage"] == (True, bytes.fromhex("03020106")), name


def test_server_certificate():
    found = Certificate("server.crt").extensions
    assert found["basic"][1] == bytes.fromhex("3000")
    assert found["usage"][1] == bytes.fromhex("03020780")
    assert found["extended"][1] == bytes.fromhex("300a06082b06010505070301")
    names = items(items(found["names"][1])[0][1])
    assert sorted(names) == [
        (0x82, b"*.ports.harbour.example"),
        (0x82, b"api.harbour.example"),
        (0x87, bytes([10, 20, 0, 5])),
    ]


def test_times():
    now = datetime.now(UTC)
    for name, least, most in (("root", 3650, 40000), ("issuing", 1825, 40000), ("server", 300, 398)):
        found = Certificate(f"{name}.crt")
        assert found.begin <= now + timedelta(minutes=5), name
        assert timedelta(days=least) <= found.end - found.begin <= timedelta(days=most), name


def test_keys():
    private = TLS / "private"
    assert private.lstat().st_mode & 0o7777 == 0o700
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(TLS / "server.crt", "/app/server.key")
    for name in ("root", "issuing"):
        assert (private / f"{name}.key").lstat().st_mode & 0o7777 == 0o600
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(TLS / f"{name}.crt", private / f"{name}.key")
        assert bytes.fromhex("06082a8648ce3d030107") in Certificate(f"{name}.crt").key, "not on P-256"
