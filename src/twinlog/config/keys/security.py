"""Keys of the services' own ports: who may call them, and how callers and services prove who they are."""

from dataclasses import replace

from twinlog.config.keys.spec import ALL_SERVICES, KeySpec, Scope, Service, ValueType

SIGNATURES = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that tokens of an OpenID provider may have. Only asymmetric ones: whoever checks a shared secret
could also sign."""


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
         "PEM file with the certificate of a service, and those between it and its CA. Set, the service's"
         " gRPC port speaks TLS. It is read when the service starts."),
    _key("twinlog.tls.key.file", ValueType.TEXT, "",
         "PEM file with the private key of that certificate, not encrypted."),
    _key("twinlog.tls.ca.file", ValueType.TEXT, "",
         "PEM file with the CAs that certificates of callers and of services must come from."),
    _key("twinlog.tls.client.auth", ValueType.TEXT, "required",
         "Whether callers must show a certificate: `required`, or `none` where tokens say who calls.",
         choices=("required", "none")),
    _key("twinlog.tls.server.name", ValueType.TEXT, "",
         "The name that clients look for in a service's certificate. Default: the host of its endpoint."),
    _key("twinlog.insecure", ValueType.BOOLEAN, "false",
         "Lets a service listen beyond loopback without TLS or without authentication: all who reach its"
         " port may then change what is copied."),
)  # fmt: skip


def _of_service(spec: KeySpec, service: Service) -> KeySpec:
    name = spec.name.replace("twinlog.", f"twinlog.{service}.", 1)
    services = ALL_SERVICES if spec.name.endswith("server.name") else (service,)
    meaning = f"The same for {service} alone; wins over `{spec.name}`."
    return replace(spec, name=name, default=None, services=services, meaning=meaning)


SECURITY_KEYS: tuple[KeySpec, ...] = (
    *_TLS,
    *(_of_service(spec, service) for service in Service for spec in _TLS),
    _key("twinlog.client.tls.certificate.file", ValueType.TEXT, "",
         "The certificate that commands show to services. Default: `twinlog.tls.certificate.file`."),
    _key("twinlog.client.tls.key.file", ValueType.TEXT, "",
         "The private key of that certificate. Default: `twinlog.tls.key.file`."),
    _key("twinlog.client.tls.ca.file", ValueType.TEXT, "",
         "The CAs that commands take for those of services; set without any `twinlog.tls.certificate.file`,"
         " it says that the services speak TLS. Default: `twinlog.tls.ca.file`."),
    _key("twinlog.client.token.file", ValueType.TEXT, "",
         "File with the token that services and commands show to services; read again when it changes."),
    _key("twinlog.auth.tokens.file", ValueType.TEXT, "",
         "File with the tokens that services take: lines of `NAME ROLE SHA256`, the last one of the token in"
         " hexadecimal digits; read again when it changes."),
    _key("twinlog.auth.oidc.issuer", ValueType.TEXT, "",
         "The OpenID provider whose tokens (JWT) services take: their `iss`, letter by letter."),
    _key("twinlog.auth.oidc.audience", ValueType.TEXT, "",
         "What the `aud` of such a token must contain; needed with the issuer."),
    _key("twinlog.auth.oidc.jwks.url", ValueType.TEXT, "",
         "Where the provider's keys are. Default: what ISSUER/.well-known/openid-configuration says."),
    _key("twinlog.auth.oidc.ca.file", ValueType.TEXT, "",
         "PEM file with the CAs of the provider's https. Default: those of the system."),
    _key("twinlog.auth.oidc.algorithms", ValueType.LIST, "RS256, ES256",
         "The signatures that are taken.", choices=SIGNATURES),
    _key("twinlog.auth.oidc.roles.claim", ValueType.TEXT, "groups",
         "The claim whose values `group:VALUE` means; dots lead into nested claims (`realm_access.roles`)."),
    _key("twinlog.auth.oidc.clock.skew.seconds", ValueType.NUMBER, "30",
         "How far the provider's clock may be from this one.", unit="s", minimum=0, maximum=300),
    _key("twinlog.auth.viewers", ValueType.LIST, "",
         "Who may look: `cn:NAME`, `dns:NAME`, `uri:URI`, `email:ADDRESS` of a certificate, `sub:SUBJECT` or"
         " `group:VALUE` of an OpenID token; a `*` at the end stands for any rest, `*` alone for everybody"
         " who is identified."),
    _key("twinlog.auth.operators", ValueType.LIST, "",
         "Who may also pause, limit, acknowledge and apply plans. Written as for `twinlog.auth.viewers`."),
    _key("twinlog.auth.admins", ValueType.LIST, "",
         "Who may do everything. Written as for `twinlog.auth.viewers`."),
)  # fmt: skip
