"""The gate, which every call of every method passes; access is decided nowhere else.

Invariant: a method whose proto names no role is refused for every caller.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import grpc
from cryptography import x509

from twinlog.api.common.v1 import access_pb2
from twinlog.config import Configuration, Service
from twinlog.config.security import AuthSettings
from twinlog.errors import ConfigError
from twinlog.service.access.exposure import INSECURE, lacks, refuse_open_port
from twinlog.service.access.pem_files import Pem, PemFiles, principals_of
from twinlog.service.access.roles import (
    ANONYMOUS,
    Caller,
    Role,
    needed_role,
    role_of,
)
from twinlog.service.access.tokens import TokenFile
from twinlog.service.errors_wire import ExhaustedError, ForbiddenError, UnauthenticatedError
from twinlog.service.limits import MAX_CALLS_PER_CALLER

Context = grpc.aio.ServicerContext[Any, Any]

AUTHORIZATION = "authorization"
_BEARER = re.compile(r"[Bb]earer +([^\s]{1,8192})")
_REMEDY = (
    "use a client certificate (twinlog.client.tls.certificate.file) or a token (twinlog.client.token.file)"
)

_caller: ContextVar[Caller | None] = ContextVar("twinlog_caller", default=None)


def caller_name(claimed: str, context: Context) -> str:
    """The name recorded for a change: the caller's identity where the port knows it, else the name that the
    caller gives, else its address."""
    caller = _caller.get()
    return caller.name if caller is not None and caller.is_known else claimed or context.peer()


def last_identified() -> Caller | None:
    """The caller of the current call, also when it is refused; None when not known."""
    return _caller.get()


class TokenVerifier(Protocol):
    """Tokens of an OpenID provider."""

    async def verify(self, token: str) -> Caller:
        """Raises UnauthenticatedError and, while the provider's keys are not known, PeerUnavailableError."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Gate:
    """Decides which caller may call which method at one port."""

    auth: AuthSettings
    _: KW_ONLY
    client_certificates: bool = False
    own_names: Callable[[], frozenset[str]] = frozenset
    """Principals of the port's own certificate; a caller with one of them is the deployment itself."""
    tokens: TokenFile | None = None
    oidc: TokenVerifier | None = None
    workers: bool = False
    """A port for tasks only, which show the token of their epoch later."""
    _open: Counter[str] = field(default_factory=Counter[str])

    @property
    def asks(self) -> bool:
        """Whether callers must authenticate."""
        return self.client_certificates or self.tokens is not None or self.oidc is not None

    @contextmanager
    def entered(self, method: str, caller: Caller, context: Context) -> Iterator[None]:
        """Holds while a call lasts. Raises ExhaustedError (TOO_MANY_CALLS) when its caller has too many
        open."""
        if self.workers:
            # As many calls as there are slots; until tasks name their slot, WorkerServicer bounds them.
            yield
            return
        with self._counted(caller.name or peer_address(context.peer())):
            _caller.set(caller)
            yield

    @contextmanager
    def _counted(self, key: str) -> Iterator[None]:
        if self._open[key] >= MAX_CALLS_PER_CALLER:
            raise ExhaustedError(
                f"{key} has {MAX_CALLS_PER_CALLER} calls open: end some first",
                reason="TOO_MANY_CALLS",
                metadata={"caller": key},
            )
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]

    async def identify(self, method: str, context: Context) -> Caller:
        """Identify the caller. Raises UnauthenticatedError, PeerUnavailableError, ForbiddenError
        (WRONG_PORT), and ExhaustedError (TOO_MANY_CALLS) when too many calls of its address wait for an
        OpenID provider."""
        if self.workers is not (needed_role(method) == access_pb2.ROLE_WORKER):
            raise ForbiddenError(f"{method} is not served on this port", reason="WRONG_PORT")
        caller = ANONYMOUS
        if self.asks:
            with self._counted(peer_address(context.peer())):
                caller = await self._identify(context)
        _caller.set(caller)
        return caller

    def require(self, method: str, caller: Caller) -> None:
        """Raises ForbiddenError for a caller without the method's role."""
        needed = needed_role(method)
        if self.workers and needed == access_pb2.ROLE_WORKER:
            return
        if needed == access_pb2.ROLE_UNSPECIFIED or caller.role < needed:
            word = "an unknown role" if needed == access_pb2.ROLE_UNSPECIFIED else Role(needed).word
            raise ForbiddenError(
                f"{caller.name or 'the caller'} has the role {caller.role.word}; {method} needs {word}: name"
                f" one of the caller's principals in twinlog.auth.{word}s",
                metadata={"caller": caller.name, "role": caller.role.word, "needed": word},
            )

    async def _identify(self, context: Context) -> Caller:
        """A token wins over a certificate, because services and proxies have certificates of their own."""
        given = [value for key, value in context.invocation_metadata() or () if key == AUTHORIZATION]
        if given and (self.tokens is not None or self.oidc is not None):
            return await self._of_token(given)
        if self.client_certificates:
            pem = next(iter(context.auth_context().get("x509_pem_cert", ())), b"")
            if pem:
                return self._of_certificate(pem)
        raise UnauthenticatedError(f"the call does not say who makes it: {_REMEDY}")

    async def _of_token(self, given: list[str | bytes]) -> Caller:
        found = _BEARER.fullmatch(given[0]) if len(given) == 1 and isinstance(given[0], str) else None
        if found is None:
            raise UnauthenticatedError(
                "the call's authorization is not a bearer token: send `authorization: Bearer TOKEN`",
                reason="TOKEN_INVALID",
            )
        token = found[1]
        if self.tokens is not None:
            caller = self.tokens.find(token)
            if caller is not None:
                return caller
        if self.oidc is not None and token.count(".") == 2:
            return await self.oidc.verify(token)
        raise UnauthenticatedError(
            "the token is not known here: it was revoked, or is for another service; get a new one and store"
            " it in twinlog.client.token.file",
            reason="TOKEN_UNKNOWN",
        )

    def _of_certificate(self, pem: bytes) -> Caller:
        name, principals = _parsed(pem)
        own = self.own_names()
        role = Role.ADMIN if own and own == frozenset(principals) else role_of(principals, self.auth)
        return Caller(name=name, role=role, via="certificate")


@lru_cache(maxsize=256)
def _parsed(pem: bytes) -> tuple[str, tuple[str, ...]]:
    certificate = x509.load_pem_x509_certificate(pem)
    principals = principals_of(certificate)
    return certificate.subject.rfc4514_string() or next(
        iter(principals), "a nameless certificate"
    ), principals


def peer_address(peer: str) -> str:
    """A peer without its port: all connections of one machine count together."""
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer


# The security of one port: its TLS, its gate, and whether other machines may reach it.


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
