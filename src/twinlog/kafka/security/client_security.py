"""Authentication and trust of a client, from Java's `security.protocol`, `sasl.*` and `ssl.*` keys.

All clients are configured from `ClientSecurity` (`twinlog.kafka.clients`). Its repr and all errors
hide passwords and keys. Files are read when `client_security` is called, so a client that is opened again
after a certificate was renewed uses the new one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.kafka.security.jaas import JaasSyntaxError, LoginEntry, parse_jaas
from twinlog.kafka.security.kerberos import GSSAPI, KerberosLogin, kerberos_login, require_package
from twinlog.kafka.security.oauth.login import MECHANISM as OAUTHBEARER
from twinlog.kafka.security.oauth.login import OAuthLogin
from twinlog.kafka.security.oauth.reading import JAAS
from twinlog.kafka.security.oauth.settings import HANDLER, msk_iam_login, oauth_login
from twinlog.kafka.security.refusal import refused as refused
from twinlog.kafka.security.tls import TlsTrust as TlsTrust
from twinlog.kafka.security.tls import ssl_context as ssl_context
from twinlog.kafka.security.tls import tls_trust

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MSK_IAM = "AWS_MSK_IAM"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER, MSK_IAM, GSSAPI)
_PASSWORD_MODULES = ("PlainLoginModule", "ScramLoginModule")
_TOKEN_MODULES = {OAUTHBEARER: "OAuthBearerLoginModule", MSK_IAM: "IAMLoginModule"}
_OWN_CLASSES = ("sasl.login.class", "sasl.client.callback.handler.class")
"""Java classes, which Twinlog cannot run."""
_PLAIN_HANDLERS = ("", "AbstractLogin$DefaultLoginCallbackHandler")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslLogin:
    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    protocol: str
    sasl: SaslLogin | OAuthLogin | KerberosLogin | None
    tls: TlsTrust | None


def client_security(properties: Mapping[str, str], *, alias: str = "") -> ClientSecurity:
    """Read the security settings of one cluster. Reads the named files.

    Raises ConfigError naming cluster, key and remedy for anything that is missing, unreadable or unsupported.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise refused(alias, "security.protocol", f"{protocol!r} is none of {', '.join(PROTOCOLS)}")
    return ClientSecurity(
        protocol=protocol,
        sasl=_sasl_login(properties, alias) if protocol.startswith("SASL_") else None,
        tls=tls_trust(properties, alias) if protocol.endswith("SSL") else None,
    )


def _sasl_login(properties: Mapping[str, str], alias: str) -> SaslLogin | OAuthLogin | KerberosLogin:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism not in MECHANISMS:
        raise refused(
            alias, "sasl.mechanism", f"{mechanism} is not supported; use one of {', '.join(MECHANISMS)}"
        )
    entry = _jaas_entry(properties, alias)
    if mechanism == GSSAPI:
        login_by_ticket = kerberos_login(properties, entry, alias=alias)
        require_package(alias)
        return login_by_ticket
    if mechanism in _TOKEN_MODULES:
        login = _token_login(mechanism, properties, entry, alias)
        if login.tls:
            tls_trust(dict(login.tls), alias)  # Report now what cannot be read.
        return login
    for key in (*_OWN_CLASSES, HANDLER):
        name = properties.get(key, "").strip()
        if name.rpartition(".")[2] not in _PLAIN_HANDLERS:
            raise refused(
                alias, key, f"{name} is Java's; leave the key out, and give user and password in {JAAS}"
            )
    if entry is None:
        raise refused(alias, JAAS, f'{mechanism} needs it: <LoginModule> required username="…" password="…";')
    return _password_login(mechanism, entry, alias)


def _jaas_entry(properties: Mapping[str, str], alias: str) -> LoginEntry | None:
    text = properties.get(JAAS, "").strip()
    try:
        return parse_jaas(text) if text else None
    except JaasSyntaxError as error:
        raise refused(alias, JAAS, f"{error} (its text is not shown, it holds a password)") from None


def _token_login(
    mechanism: str, properties: Mapping[str, str], entry: LoginEntry | None, alias: str
) -> OAuthLogin:
    module = _TOKEN_MODULES[mechanism]
    if entry is not None and entry.module_name not in _TOKEN_MODULES.values():
        raise refused(alias, JAAS, f"{entry.module_name} is not for {mechanism}; use {module}")
    if properties.get("sasl.login.class", "").strip():
        raise refused(alias, "sasl.login.class", "classes of Java cannot be run; leave the key out")
    if mechanism == MSK_IAM:
        return msk_iam_login(properties, entry, alias=alias)
    return oauth_login(properties, entry, alias=alias)


def _password_login(mechanism: str, entry: LoginEntry, alias: str) -> SaslLogin:
    if entry.module_name not in _PASSWORD_MODULES:
        raise refused(
            alias, JAAS, f"{entry.module_name} is not supported; use {' or '.join(_PASSWORD_MODULES)}"
        )
    if entry.options.get("tokenauth", "false").lower() == "true":
        raise refused(alias, JAAS, "delegation tokens (tokenauth) are not supported; use a SCRAM user")
    for option in ("username", "password"):
        if not entry.options.get(option):
            raise refused(alias, JAAS, f'{option} is missing; add {option}="…" before the semicolon')
    return SaslLogin(
        mechanism=mechanism, username=entry.options["username"], password=entry.options["password"]
    )
