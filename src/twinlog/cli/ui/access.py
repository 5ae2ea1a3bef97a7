"""Who may look at the page: secured as the API is, and closed to pages of other sites."""

import asyncio
import ipaddress
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

from twinlog.config import Address
from twinlog.config.security import TlsFiles
from twinlog.errors import ConfigError
from twinlog.service.access.pem_files import Pem, PemFiles
from twinlog.service.access.tokens import TokenFile
from twinlog.service.waiting import wait_or_stop

RENEWAL_SECONDS = 5.0

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


class PageCertificate:
    """What the page shows: the newest files that are good, as the services do."""

    def __init__(self, files: PemFiles) -> None:
        """Raises ConfigError for files that are not usable."""
        self._files = files
        self._shown = files.current()
        self._newest = _context(self._shown)
        self.context = _context(self._shown)
        """For the server. Each handshake takes the newest certificate; connections keep theirs."""
        self.context.sni_callback = self._choose

    async def renew(self, stop: asyncio.Event) -> None:
        """Loop: look for newer files. Those that are not good leave the earlier ones in use."""
        while not await wait_or_stop(stop, RENEWAL_SECONDS):
            newest = await asyncio.to_thread(self._files.current)
            if newest != self._shown:
                self._newest = await asyncio.to_thread(_context, newest)
                self._shown = newest

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest


def _context(pem: Pem) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The module reads files only. Its own, which nobody else can read, hold what was found to fit together.
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem.key.rstrip() + b"\n" + pem.chain)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def page_certificate(certificate: Path | None, key: Path | None) -> PageCertificate | None:
    """Raises ConfigError."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError("--certificate and --key belong together: name both", key="--certificate")
    try:
        return PageCertificate(PemFiles(TlsFiles(certificate=str(certificate), key=str(key), ca="")))
    except ssl.SSLError as error:
        raise ConfigError(
            f"--certificate {certificate}: not usable with --key {key}: {error.reason or error}",
            key="--certificate",
        ) from error


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


def is_own_page(headers: Mapping[str, str]) -> bool:
    """Whether a request comes from a page of this server, from the address bar, or from no browser. Others
    could not read the answer, but keep all streams open and ask for plans.

    >>> is_own_page({}), is_own_page({"Sec-Fetch-Site": "cross-site"})
    (True, False)
    """
    return headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")


def may_look(authorization: str, tokens: TokenFile | None) -> bool:
    """Whether the Authorization header shows a known token, where one is asked for. Every role may look."""
    if tokens is None:
        return True
    scheme, _, token = authorization.partition(" ")
    return scheme.lower() == "bearer" and bool(token) and tokens.find(token.strip()) is not None
