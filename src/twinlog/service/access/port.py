"""The security of one port: its TLS, its gate, and whether other machines may reach it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from twinlog.config import Configuration, Service
from twinlog.config.security import AuthSettings
from twinlog.errors import ConfigError
from twinlog.service.access.exposure import INSECURE, lacks, refuse_open_port
from twinlog.service.access.gate import Gate, TokenVerifier
from twinlog.service.access.pem_files import Pem, PemFiles
from twinlog.service.access.tokens import TokenFile


@dataclass(frozen=True, slots=True, kw_only=True)
class PortAccess:
    """The security settings of a `GrpcServer`."""

    pem: Pem | None = None
    """Certificate, key and CA at start; None: plain text."""
    newest: Callable[[], Pem] | None = None
    """Returns the files to use now. Blocks while it reads them. None: the port keeps `pem`."""
    client_certificates: bool = False
    gate: Gate = field(default_factory=lambda: Gate(AuthSettings()))
    lacks: str = "TLS and no authentication"
    word: str = ""
    """The value in every answer: "insecure", "loopback", "tls", "authenticated", or "tls,authenticated"."""

    def bind(self, server: grpc.aio.Server, address: str, pem: Pem | None) -> int:
        """Bind the port with certificate `pem`; return its number. Raises RuntimeError when the address
        cannot be bound."""
        if pem is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, self._credentials(pem))

    def _credentials(self, pem: Pem) -> grpc.ServerCredentials:
        # Not `dynamic_ssl_server_credentials`: gRPC then calls into Python at each handshake and waits for
        # the interpreter's lock while it holds its own locks. A loop that waits for one of those may hold the
        # interpreter's, and the process deadlocks: with five callers within seconds.
        return grpc.ssl_server_credentials(
            [(pem.key, pem.chain)],
            root_certificates=pem.ca if self.client_certificates else None,
            require_client_auth=self.client_certificates,
        )


def open_port_access(configuration: Configuration, service: Service) -> PortAccess:
    """Read the configured files. Raises ConfigError when one is not usable, and for a port that
    `refuse_open_port` refuses."""
    refuse_open_port(configuration, service)
    security = configuration.security
    port, auth = security.port(service), security.auth
    files = None if port.tls is None else PemFiles(port.tls)
    gate = Gate(
        auth,
        client_certificates=port.client_certificates,
        own_names=frozenset if files is None else lambda: files.current().names,
        tokens=TokenFile(auth.tokens_file) if auth.tokens_file else None,
        oidc=_oidc(auth),
    )
    missing = lacks(security, service)
    words = [
        *(["tls"] if files is not None else []),
        *(["authenticated"] if security.is_authenticated(service) else []),
    ]
    open_word = "loopback" if configuration.endpoints[service].listen.is_loopback else INSECURE
    return PortAccess(
        pem=None if files is None else files.current(),
        newest=None if files is None else files.current,
        client_certificates=port.client_certificates,
        gate=gate,
        lacks=missing,
        word=",".join(words) if not missing or (words and open_word == "loopback") else open_word,
    )


def _oidc(auth: AuthSettings) -> TokenVerifier | None:
    if auth.oidc is None:
        return None
    try:
        # Imported only where it is used.
        from twinlog.service.access.oidc import OidcVerifier
    except ModuleNotFoundError as error:
        raise ConfigError(
            "twinlog.auth.oidc.issuer: tokens of an OpenID provider need the package PyJWT beside the"
            " service: pip install 'twinlog-service[oidc]'",
            reason="PYJWT_NOT_INSTALLED",
            key="twinlog.auth.oidc.issuer",
        ) from error

    return OidcVerifier(auth.oidc, auth)
