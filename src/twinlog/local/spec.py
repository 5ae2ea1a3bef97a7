"""The specification of a local cluster: plain data, checked on creation."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from twinlog.errors import ConfigError

ADDRESS: Final = "127.0.0.1"
"""Every listener is on loopback, by number: no name is resolved."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class KafkaVersion(StrEnum):
    V4_4 = "4.4.0"
    V4_3 = "4.3.1"
    V3_9 = "3.9.2"
    V3_3 = "3.3.2"
    V2_8 = "2.8.2"

    @property
    def is_before_4(self) -> bool:
        return self < "4"

    @property
    def has_zookeeper(self) -> bool:
        """One server beside the first broker, instead of controllers."""
        return self < "3"


class SaslMechanism(StrEnum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


SCRAM_MECHANISMS: Final = frozenset({SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512})


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How clients log in, and their rights. The default is an open cluster."""

    tls: bool = False
    client_certificates: bool = False
    """Clients must show a certificate; without SASL its common name is the user."""
    mechanisms: tuple[SaslMechanism, ...] = ()
    """SASL mechanisms of the client listener; every user may log in with each. Empty = no SASL."""
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords by name, without the super user."""
    super_user: str = "super"
    super_password: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)
    authorizer: bool = False
    """Use ACLs (StandardAuthorizer): everybody but the super user needs an ACL for everything."""

    def __post_init__(self) -> None:
        if self.client_certificates and not self.tls:
            raise ConfigError("client certificates need tls=True")
        if self.authorizer and not (self.mechanisms or self.client_certificates):
            raise ConfigError(
                "with an authorizer clients must have names: add SASL mechanisms or client certificates"
            )
        if self.users and not (self.mechanisms or self.client_certificates):
            raise ConfigError("users must be able to log in: add a SASL mechanism or client certificates")
        wrong = [name for name in (self.super_user, *self.users) if not _NAME.fullmatch(name)]
        if wrong:
            raise ConfigError(
                f"a user's name has letters, digits, dots, dashes and underscores only: {wrong[0]!r}"
            )
        if self.super_user in self.users:
            raise ConfigError(f"{self.super_user!r} is the super user: its password is super_password")

    @property
    def passwords(self) -> dict[str, str]:
        """Password of every user, the super user first."""
        return {self.super_user: self.super_password, **self.users}

    @property
    def protocol(self) -> str:
        """Kafka's `security.protocol` of the client listener."""
        if self.mechanisms:
            return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return "SSL" if self.tls else "PLAINTEXT"

    @property
    def guards_internals(self) -> bool:
        """Whether brokers log in to each other, as they must once users have their own rights."""
        return bool(self.mechanisms) or self.authorizer


OPEN: Final = Security()


@dataclass(frozen=True, slots=True, kw_only=True)
class FarListener:
    """A second listener for distant clients: their path passes through a proxy that delays them."""

    port: int
    """The port on which the broker listens."""
    advertised_port: int
    """The port that clients are told; it leads to `port`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """One cluster of combined brokers and controllers (KRaft; ZooKeeper in 2.8) on this machine."""

    name: str = "local"
    """For messages, logs and `twinlog local`."""
    broker_count: int = 1
    """1 or 3: node ids count from 1."""
    version: KafkaVersion = KafkaVersion.V4_3
    security: Security = OPEN
    first_port: int | None = None
    """Client port of broker 1; the others follow. None = free ports."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Broker properties in Kafka's names, which override ours. `{node_id}` stands for each broker's id."""
    java_options: tuple[str, ...] = ()
    """Further options of each broker's JVM, as `-Dname=value`."""
    heap_megabytes: int = 384
    client_host: str = ADDRESS
    """The host that brokers tell their clients, for proxies on the way. `{node_id}` stands for each broker's
    id."""
    far: FarListener | None = None
    """A second listener, for a cluster of one broker."""
    quick_start: bool = True
    """Skip the JVM's optimising compiler: the broker starts sooner and runs slower. False for
    measurements."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"a cluster's name has letters, digits, dots, dashes and underscores only: {self.name!r}"
            )
        if self.broker_count not in (1, 3):
            raise ConfigError(f"a cluster has 1 or 3 brokers, not {self.broker_count}")
        if self.version < "3.5" and SCRAM_MECHANISMS.intersection(self.security.mechanisms):
            raise ConfigError(f"SCRAM users need Kafka 3.5 or newer, not {self.version}")
        if self.far is not None and self.broker_count != 1:
            raise ConfigError("only a cluster of one broker can have a far listener")
