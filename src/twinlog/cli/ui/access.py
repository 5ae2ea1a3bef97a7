"""Who may look at the page: secured as the API is, and closed to pages of other sites."""

import ipaddress
import ssl
from collections.abc import Mapping
from pathlib import Path

from twinlog.config import Address
from twinlog.errors import ConfigError
from twinlog.service.access.tokens import TokenFile

SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def refuse_open_page(listen: Address, *, tls: bool, tokens: bool, insecure: bool) -> None:
    """Raises ConfigError (INSECURE_LISTEN) for a page that others than this machine reach, and that would let
    in anybody."""
    missing = " and no ".join(
        word for word, present in (("TLS", tls), ("authentication", tokens)) if not present
    )
    if missing and not listen.is_loopback and not insecure:
        raise ConfigError(
            f"--listen: {listen} is reached from other machines, and there is no {missing}: all who reach"
            " it see topics, groups and lag. Name --certificate, --key and --tokens (docs/security.md),"
            " listen on 127.0.0.1, or, inside a network you trust, add --insecure.",
            reason="INSECURE_LISTEN",
            metadata={"key": "--listen", "address": str(listen)},
        )


def tls_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Raises ConfigError."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError(
            "--certificate and --key belong together: name both", metadata={"key": "--certificate"}
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"--certificate {certificate}: not usable with --key {key}: {error.strerror or error}",
            metadata={"key": "--certificate"},
        ) from error
    return context


def is_own_host(host: str, listen: Address, names: frozenset[str]) -> bool:
    """Whether a request's Host header names this server. A name that somebody else's DNS points here is
    refused: a page of theirs could read ours (DNS rebinding).

    >>> is_own_host("localhost:8890", Address(host="127.0.0.1", port=8890), frozenset())
    True
    >>> is_own_host("evil.example:8890", Address(host="127.0.0.1", port=8890), frozenset())
    False
    """
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    name = name.strip("[]").lower()
    if name in names or name == listen.host:
        return True
    if name == "localhost":
        return listen.is_loopback
    try:
        # No DNS is asked for a number, so none can be made to point here.
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def may_look(authorization: str, tokens: TokenFile | None) -> bool:
    """Whether the Authorization header shows a known token, where one is asked for. Every role may look."""
    if tokens is None:
        return True
    scheme, _, token = authorization.partition(" ")
    return scheme.lower() == "bearer" and bool(token) and tokens.find(token.strip()) is not None
