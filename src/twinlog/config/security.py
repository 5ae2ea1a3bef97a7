"""The security of the services' ports in a file. Pure: files are only named here; `twinlog.service.access`
reads them."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from twinlog.config.keys.spec import Service
from twinlog.config.values.reader import ConfigFindings, SettingsReader

# Which hosts can only be reached from this machine.


def is_loopback(host: str) -> bool:
    """By an address or `localhost`; any other name may lead anywhere.

    >>> is_loopback("127.0.0.2"), is_loopback("[::1]"), is_loopback("127.evil.example")
    (True, True, False)
    """
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


PRINCIPAL_KINDS = ("cn", "dns", "uri", "email", "sub", "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The PEM files of one end of a connection."""

    certificate: str
    key: str
    ca: str = ""
    """Empty: the system's CAs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSecurity:
    """Who may connect to the gRPC port of one service, and how."""

    tls: TlsFiles | None = None
    """None = without TLS."""
    client_certificates: bool = False
    """Callers must have one."""
    insecure: bool = False
    """It may be open to other machines although it is not protected."""
    server_name: str = ""
    """The name that clients expect in the certificate; empty = the host of the endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """An OpenID provider whose tokens are accepted."""

    issuer: str
    audience: str
    jwks_url: str = ""
    """Empty: the one in the provider's discovery document."""
    ca_file: str = ""
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    roles_claim: str = "groups"
    clock_skew_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    """The known callers, and their rights."""

    tokens_file: str = ""
    oidc: OidcSettings | None = None
    viewers: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()

    @property
    def takes_tokens(self) -> bool:
        return bool(self.tokens_file) or self.oidc is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSecurity:
    """How to call one service."""

    tls: bool = False
    ca: str = ""
    certificate: str = ""
    key: str = ""
    token_file: str = ""
    server_name: str = ""
    insecure: bool = False
    """A token may be sent to another machine without TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """Without any keys: no TLS, no authentication."""

    ports: Mapping[Service, PortSecurity] = field(default_factory=dict)
    auth: AuthSettings = field(default_factory=AuthSettings)
    client: PeerSecurity = field(default_factory=PeerSecurity)
    """How commands authenticate, to any service."""

    def port(self, service: Service) -> PortSecurity:
        return self.ports.get(service, PortSecurity())

    def is_authenticated(self, service: Service) -> bool:
        """Whether a port authenticates its callers."""
        return self.port(service).client_certificates or self.auth.takes_tokens

    def to_call(self, service: Service, *, own: Service | None = None) -> PeerSecurity:
        """How `own` (None: a command) calls a service."""
        port, client = self.port(service), self.client
        mine = None if own is None else self.port(own).tls
        return PeerSecurity(
            tls=port.tls is not None or client.tls,
            ca=client.ca if mine is None else mine.ca or client.ca,
            certificate=client.certificate if mine is None else mine.certificate,
            key=client.key if mine is None else mine.key,
            token_file=client.token_file,
            server_name=port.server_name,
            insecure=port.insecure,
        )


def security_settings(top: SettingsReader, findings: ConfigFindings) -> SecuritySettings:
    """Read all keys; contradictions become problems in `findings`."""
    ports = {service: _port(top, service, findings) for service in Service}
    auth = _auth(top, findings)
    if not (auth.tokens_file or auth.oidc or any(port.client_certificates for port in ports.values())):
        for role in ("viewers", "operators", "admins"):
            if getattr(auth, role):
                findings.problem(
                    f"twinlog.auth.{role}",
                    "without effect: no caller is asked who it is, and each may do everything; set"
                    " twinlog.tls.ca.file with a certificate and a key, twinlog.auth.tokens.file, or"
                    " twinlog.auth.oidc.issuer (docs/security.md)",
                )
    return SecuritySettings(
        ports=ports,
        auth=auth,
        client=PeerSecurity(
            # If a file for commands alone names the CAs, the services of other machines use TLS.
            tls=bool(top.text("twinlog.client.tls.ca.file")),
            ca=top.text("twinlog.client.tls.ca.file") or top.text("twinlog.tls.ca.file"),
            certificate=top.text("twinlog.client.tls.certificate.file")
            or top.text("twinlog.tls.certificate.file"),
            key=top.text("twinlog.client.tls.key.file") or top.text("twinlog.tls.key.file"),
            token_file=top.text("twinlog.client.token.file"),
            insecure=top.boolean("twinlog.insecure"),
        ),
    )


def _port(top: SettingsReader, service: Service, findings: ConfigFindings) -> PortSecurity:
    def text(name: str) -> str:
        return top.optional_text(f"twinlog.{service}.{name}") or top.text(f"twinlog.{name}")

    certificate, key, ca = text("tls.certificate.file"), text("tls.key.file"), text("tls.ca.file")
    required = text("tls.client.auth") == "required"
    own = f"twinlog.{service}.insecure"
    insecure = top.boolean(own) if top.property(own) is not None else top.boolean("twinlog.insecure")
    if bool(certificate) != bool(key):
        missing = "twinlog.tls.key.file" if certificate else "twinlog.tls.certificate.file"
        findings.problem(missing, f"missing: a certificate and its private key go together ({service})")
    elif certificate and required and not ca:
        findings.problem(
            "twinlog.tls.ca.file",
            f"missing: the CAs of the callers of {service}, or twinlog.tls.client.auth = none",
        )
    tls = TlsFiles(certificate=certificate, key=key, ca=ca) if certificate and key else None
    return PortSecurity(
        tls=tls,
        client_certificates=tls is not None and required,
        insecure=insecure,
        server_name=text("tls.server.name"),
    )


def _auth(top: SettingsReader, findings: ConfigFindings) -> AuthSettings:
    return AuthSettings(
        tokens_file=top.text("twinlog.auth.tokens.file"),
        oidc=_oidc(top, findings),
        viewers=_principals(top, "twinlog.auth.viewers", findings),
        operators=_principals(top, "twinlog.auth.operators", findings),
        admins=_principals(top, "twinlog.auth.admins", findings),
    )


def _oidc(top: SettingsReader, findings: ConfigFindings) -> OidcSettings | None:
    issuer, audience = top.text("twinlog.auth.oidc.issuer"), top.text("twinlog.auth.oidc.audience")
    if not issuer:
        if audience:
            findings.problem(
                "twinlog.auth.oidc.issuer",
                "missing: without it no token is accepted, and callers are not authenticated",
            )
        return None
    if not audience:
        findings.problem(
            "twinlog.auth.oidc.audience",
            "missing: without it a token for any other service would be accepted",
        )
    algorithms = top.elements("twinlog.auth.oidc.algorithms")
    if not algorithms:
        findings.problem("twinlog.auth.oidc.algorithms", "empty: no token would be accepted")
    jwks_url = top.text("twinlog.auth.oidc.jwks.url")
    for key, url in (("twinlog.auth.oidc.issuer", issuer), ("twinlog.auth.oidc.jwks.url", jwks_url)):
        if url and not is_trusted_url(url):
            findings.problem(key, "expected an https:// address (http:// is taken on loopback only)")
    return OidcSettings(
        issuer=issuer,
        audience=audience,
        jwks_url=jwks_url,
        ca_file=top.text("twinlog.auth.oidc.ca.file"),
        algorithms=algorithms,
        roles_claim=top.text("twinlog.auth.oidc.roles.claim"),
        clock_skew_seconds=top.number("twinlog.auth.oidc.clock.skew.seconds"),
    )


def is_trusted_url(url: str) -> bool:
    """https, or http that does not leave this machine.

    >>> is_trusted_url("https://id.example/realm"), is_trusted_url("http://id.example/")
    (True, False)
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def _principals(top: SettingsReader, key: str, findings: ConfigFindings) -> tuple[str, ...]:
    found = top.elements(key)
    for entry in found:
        kind, colon, name = entry.partition(":")
        if entry != "*" and not (colon and name and kind in PRINCIPAL_KINDS):
            prop = top.property(key)
            findings.problem(
                key,
                f"{entry!r}: expected KIND:NAME with one of {', '.join(PRINCIPAL_KINDS)}, or *",
                line=prop.line if prop is not None else 0,
            )
    return found
