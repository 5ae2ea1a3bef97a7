"""Kerberos: what Java's login module says, read for the system's library; and the agreement with a broker."""

from collections.abc import Mapping

import pytest

from twinlog.errors import ConfigError
from twinlog.kafka.security.jaas import (
    KerberosAuthenticator,
    KerberosError,
    KerberosLogin,
    kerberos_login,
    parse_jaas,
)

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"


def login(options: str, properties: Mapping[str, str] | None = None) -> KerberosLogin:
    return kerberos_login(properties or {}, parse_jaas(f"{MODULE} {options};"), alias="A")


def test_a_key_table_a_ticket_and_the_service_are_read_as_java_reads_them() -> None:
    service = {"sasl.kerberos.service.name": "kafka"}
    keytab = 'useKeyTab=true storeKey=true keyTab="/etc/k" principal="app@REALM"'
    assert login(keytab, service) == KerberosLogin(service="kafka", principal="app@REALM", keytab="/etc/k")
    assert login("useTicketCache=true", service) == KerberosLogin(service="kafka")
    assert login("useTicketCache=true serviceName=other", service).service == "kafka", "the key wins"
    assert login("useTicketCache=true serviceName=other").service == "other"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("serviceName=kafka keyTab=k principal=p", "useKeyTab=true"),
        ("serviceName=kafka useKeyTab=true keyTab=k", "principal is missing"),
        ("serviceName=kafka useTicketCache=true ticketCache=c", "KRB5CCNAME"),
        ("useTicketCache=true", "sasl.kerberos.service.name: it is missing"),
    ],
)
def test_what_cannot_be_obeyed_is_refused(options: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        login(options)


class _Established:
    """A context of the library whose wrapping is plain."""

    def wrap(self, message: bytes, encrypt: bool) -> "_Wrapped":
        assert not encrypt
        return _Wrapped(message)


class _Wrapped:
    def __init__(self, message: bytes) -> None:
        self.message = message


def test_a_connection_is_agreed_on_without_a_protection_of_kerberos() -> None:
    authenticator = KerberosAuthenticator(KerberosLogin(service="kafka"), "host", context=_Established())
    assert authenticator.agreement(b"\x07\x00\x10\x00") == b"\x01\x00\x00\x00"


@pytest.mark.parametrize("offer", [b"\x04\x00\x10\x00", b"", b"\x01"])
def test_a_broker_that_wants_more_or_says_nothing_is_refused(offer: bytes) -> None:
    authenticator = KerberosAuthenticator(KerberosLogin(service="kafka"), "host", context=_Established())
    with pytest.raises(KerberosError):
        authenticator.agreement(offer)
