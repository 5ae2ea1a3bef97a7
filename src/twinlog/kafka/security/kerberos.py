"""Kerberos (GSSAPI): the options of Java's Krb5LoginModule in `sasl.jaas.config`, for the system's Kerberos.

Realms and KDCs come from the machine's krb5.conf (`KRB5_CONFIG`), as with Java. The package `gssapi` is
needed, which no wheel contains: it is built against the system's library. Without it the login is refused at
the start.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.kafka.security.jaas import LoginEntry
from twinlog.kafka.security.refusal import refused

GSSAPI = "GSSAPI"
MODULE = "Krb5LoginModule"
JAAS = "sasl.jaas.config"
SERVICE_NAME = "sasl.kerberos.service.name"
EXTRA = "pip install 'twinlog-core[gssapi]', which needs the system's Kerberos (Debian: libkrb5-dev, gcc)"


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosLogin:
    """Principal, credentials and service. It contains no secret: a key is in the file `keytab`."""

    service: str
    """The first part of the brokers' principals: `kafka`."""
    principal: str = ""
    """Empty = that of the ticket cache."""
    keytab: str = ""
    """The path of the file with the principal's key; empty = a ticket of the machine's default cache is used
    (`KRB5CCNAME`)."""
    mechanism: str = GSSAPI


def kerberos_login(properties: Mapping[str, str], entry: LoginEntry | None, *, alias: str) -> KerberosLogin:
    """Raises ConfigError for settings that are missing or cannot be followed."""
    if entry is None or entry.module_name != MODULE:
        raise refused(
            alias,
            JAAS,
            f"GSSAPI (Kafka's default of sasl.mechanism) needs com.sun.security.auth.module.{MODULE} here,"
            " with keyTab and principal or useTicketCache=true; or set sasl.mechanism to another one, such as"
            " SCRAM-SHA-512 or OAUTHBEARER",
        )
    options = {name.lower(): value for name, value in entry.options.items()}
    service = (properties.get(SERVICE_NAME, "") or options.get("servicename", "")).strip()
    if not service:
        raise refused(
            alias, SERVICE_NAME, "it is missing; set it to the brokers' service, which is kafka usually"
        )
    login = KerberosLogin(
        service=service,
        principal=options.get("principal", ""),
        keytab=options.get("keytab", "") if options.get("usekeytab", "").lower() == "true" else "",
    )
    from_cache = options.get("useticketcache", "").lower() == "true"
    if not login.keytab and not from_cache:
        raise refused(
            alias,
            JAAS,
            "a password cannot be asked for: set useKeyTab=true with keyTab and principal, or"
            " useTicketCache=true",
        )
    if options.get("ticketcache"):
        raise refused(alias, JAAS, "ticketCache: set KRB5CCNAME in the environment of each process instead")
    if login.keytab and not login.principal:
        raise refused(alias, JAAS, "principal is missing; a key table may hold the keys of many")
    return login


def require_package(alias: str) -> None:
    """Raises ConfigError if the package for the system's Kerberos is missing."""
    if importlib.util.find_spec("gssapi") is None:
        raise refused(alias, "sasl.mechanism", f"GSSAPI needs a package: {EXTRA}")
