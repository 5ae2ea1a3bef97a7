"""The keys of the services' own ports: who may call them, and how callers and services authenticate."""

from dataclasses import replace

from twinlog.config.keys.spec import ALL_SERVICES, KeySpec, Scope, Service, ValueType

SIGNATURES = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""The signatures that tokens of an OpenID provider may have. Only asymmetric ones, because anybody who can
verify a shared secret can also sign with it."""


def _key(
    name: str,
    value_type: ValueType,
    default: str | None,
    meaning: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> KeySpec:
    return KeySpec(
        name=name, type=value_type, default=default, scope=Scope.TOP, services=ALL_SERVICES, meaning=meaning,
        unit=unit, minimum=minimum, maximum=maximum, choices=choices,
    )  # fmt: skip


_TLS: tuple[KeySpec, ...] = (
    _key("twinlog.tls.certificate.file", ValueType.TEXT, "",
         "PEM file with the certificate chain of a service, without its root CA. If it is set, the service's"
         " gRPC port uses TLS. It is read again when it changes."),
    _key("twinlog.tls.key.file", ValueType.TEXT, "",
         "PEM file with the private key of that certificate, not encrypted."),
    _key("twinlog.tls.ca.file", ValueType.TEXT, "",
         "PEM file with the CAs that must have signed the certificates of callers and of services."),
    _key("twinlog.tls.client.auth", ValueType.TEXT, "required",
         "Whether callers must have a certificate: `required`, or `none` if tokens identify them.",
         choices=("required", "none")),
    _key("twinlog.tls.server.name", ValueType.TEXT, "",
         "The name that callers expect in a service's certificate. Default: the host of its endpoint."),
    _key("twinlog.insecure", ValueType.BOOLEAN, "false",
         "Lets a service listen beyond loopback without TLS or without authentication: everybody who reaches"
         " its port may then change what is copied."),
)  # fmt: skip


def _of_service(spec: KeySpec, service: Service) -> KeySpec:
    name = spec.name.replace("twinlog.", f"twinlog.{service}.", 1)
    services = ALL_SERVICES if spec.name.endswith("server.name") else (service,)
    meaning = f"`{spec.name}` for {service} only; wins over that key."
    return replace(spec, name=name, default=None, services=services, meaning=meaning)


SECURITY_KEYS: tuple[KeySpec, ...] = (
    *_TLS,
    *(_of_service(spec, service) for service in Service for spec in _TLS),
    _key("twinlog.client.tls.certificate.file", ValueType.TEXT, "",
         "PEM file with the certificate of commands that call services. Default:"
         " `twinlog.tls.certificate.file`."),
    _key("twinlog.client.tls.key.file", ValueType.TEXT, "",
         "PEM file with the private key of that certificate. Default: `twinlog.tls.key.file`."),
    _key("twinlog.client.tls.ca.file", ValueType.TEXT, "",
         "PEM file with the CAs that must have signed the certificates of services. If it is set without any"
         " `twinlog.tls.certificate.file`, commands call services by TLS. Default: `twinlog.tls.ca.file`."),
    _key("twinlog.client.token.file", ValueType.TEXT, "",
         "File with the token that services and commands send to services; read again when it changes."),
    _key("twinlog.auth.tokens.file", ValueType.TEXT, "",
         "File with the tokens that services accept, in lines of `NAME ROLE SHA256`: the name and the role of"
         " the caller, and the SHA-256 hash of the token in hexadecimal digits; read again when it changes."),
    _key("twinlog.auth.oidc.issuer", ValueType.TEXT, "",
         "The OpenID provider whose tokens (JWT) services accept: exactly the value of their `iss` claim."),
    _key("twinlog.auth.oidc.audience", ValueType.TEXT, "",
         "The value that the `aud` claim of such a token must contain; required with the issuer."),
    _key("twinlog.auth.oidc.jwks.url", ValueType.TEXT, "",
         "The URL of the provider's keys. Default: the one in ISSUER/.well-known/openid-configuration."),
    _key("twinlog.auth.oidc.ca.file", ValueType.TEXT, "",
         "PEM file with the CAs for HTTPS to the provider. Default: those of the system."),
    _key("twinlog.auth.oidc.algorithms", ValueType.LIST, "RS256, ES256",
         "The signature algorithms that services accept.", choices=SIGNATURES),
    _key("twinlog.auth.oidc.roles.claim", ValueType.TEXT, "groups",
         "The claim that `group:VALUE` in the lists of roles refers to; dots lead into nested claims"
         " (`realm_access.roles`)."),
    _key("twinlog.auth.oidc.clock.skew.seconds", ValueType.NUMBER, "30",
         "How far the provider's clock may differ from that of the service.", unit="s", minimum=0,
         maximum=300),
    _key("twinlog.auth.viewers", ValueType.LIST, "",
         "Callers with the role viewer: `cn:NAME`, `dns:NAME`, `uri:URI`, `email:ADDRESS` of a certificate,"
         " `sub:SUBJECT` or `group:VALUE` of an OpenID token. A `*` at the end matches any rest, `*` alone"
         " everybody who is identified."),
    _key("twinlog.auth.operators", ValueType.LIST, "",
         "Callers with the role operator, who may also pause, limit, acknowledge gaps and apply plans."
         " Written as for `twinlog.auth.viewers`."),
    _key("twinlog.auth.admins", ValueType.LIST, "",
         "Callers with the role admin, who may do everything. Written as for `twinlog.auth.viewers`."),
)  # fmt: skip
