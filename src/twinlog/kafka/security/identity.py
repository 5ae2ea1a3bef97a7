"""The result of reading a certificate store; separate from the reading, which needs a large library."""

from dataclasses import dataclass, field


class StoreError(ValueError):
    """The store cannot be read: damaged, another format, or another password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """A client's certificate with its chain, and the private key, for mutual TLS."""

    certificate_chain_pem: str
    key_pem: str = field(repr=False)
    """PKCS8 without encryption; it stays in memory."""
