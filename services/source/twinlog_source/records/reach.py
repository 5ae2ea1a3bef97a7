"""Where the two ends of a pipe reach the process that sends records through it.

Invariant: no record leaves the machine in clear. A process of which the ends may be on other machines is
reached at one address, over TLS with a certificate that only the pipe's job is told.
"""

import socket
import ssl
import tempfile
from dataclasses import dataclass, field

from twinlog.clock import SystemClock

LOOPBACK = "127.0.0.1"
NAME = "pipe.twinlog"
"""In the certificate: the ends find the process at any address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    bind: str = LOOPBACK
    host: str = LOOPBACK
    """What the ends connect to."""
    certificate: str = ""
    """PEM, by which they know the process; empty: on loopback, without TLS."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def listen(self) -> socket.socket:
        """At a free port. Raises OSError."""
        family = socket.AF_INET6 if ":" in self.bind else socket.AF_INET
        return socket.create_server((self.bind, 0), family=family)


def over_network(*, bind: str, host: str) -> Reach:
    """With a certificate of its own, made now."""
    # Here, because most flows need no cryptography.
    from twinlog.service.access.pem_files import own_certificate

    pem = own_certificate(NAME, SystemClock())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    tls.num_tickets = 0  # An end would take one for the beginning of more records.
    with tempfile.NamedTemporaryFile() as file:  # Python reads keys from files only; this one is private.
        file.write(pem.key + pem.chain)
        file.flush()
        tls.load_cert_chain(file.name)
    return Reach(bind=bind, host=host, certificate=pem.chain.decode(), tls=tls)


def tls_to(certificate: str) -> ssl.SSLContext:
    """For connections to the process that has the certificate, as `NAME`, and to no other one."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    tls.load_verify_locations(cadata=certificate)
    return tls


def towards(endpoint: str) -> Reach:
    """Over the network, at the address of this machine from which packets go to `host:port`. Nothing is sent.
    Raises OSError."""
    host, _, port = endpoint.rpartition(":")
    family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        own = str(probe.getsockname()[0])
    return over_network(bind=own, host=own)
