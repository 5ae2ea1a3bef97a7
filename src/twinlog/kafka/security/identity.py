"""What reading a certificate store gives: apart from the reading, which needs a large library."""

from dataclasses import dataclass, field


class StoreError(ValueError):
    """The store cannot be read: damaged, another format, or another password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """What a client shows for mutual TLS: its certificate with the chain above it, and the private key."""

    certificate_chain_pem: str
    key_pem: str = field(repr=False)
    """PKCS8 without encryption: stays in memory."""
