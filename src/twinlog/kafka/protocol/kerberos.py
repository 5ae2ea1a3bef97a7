"""The client's side of SASL GSSAPI (RFC 4752): a context of the Kerberos library, then the agreement on no
further protection, which TLS provides.

Credentials are read from the key table or the ticket cache each time, so the next login uses renewed ones;
the library gets a new ticket when the earlier one has expired.
"""

import asyncio
import importlib
from typing import Any

from twinlog.kafka.security.kerberos import KerberosLogin

_NO_PROTECTION = 1
"""The bit of RFC 4752 for authentication only."""


class KerberosError(ValueError):
    """There is no ticket, or the broker's answer does not prove its principal."""


class KerberosAuthenticator:
    """One login at one broker. `step` calls the KDC, in a thread."""

    def __init__(self, login: KerberosLogin, host: str, *, context: Any = None) -> None:
        """`context` is a complete one of the library; None = the first step creates one."""
        self._login = login
        self._host = host
        self._context = context
        self._is_agreed = False

    async def step(self, challenge: bytes | None) -> tuple[bytes, bool] | None:
        """What to send next; None at the end. Raises KerberosError."""
        if self._is_agreed:
            return None
        return await asyncio.to_thread(self._next, challenge), True

    def _next(self, challenge: bytes | None) -> bytes:
        gssapi: Any = importlib.import_module("gssapi")
        try:
            if self._context is None:
                self._context = self._begun(gssapi)
            if not self._context.complete:
                return self._context.step(challenge) or b""
            return self.agreement(self._context.unwrap(challenge or b"").message)
        except gssapi.exceptions.GSSError as error:
            raise KerberosError(
                f"Kerberos: {error} (principal {self._login.principal or 'of the ticket cache'}, service"
                f" {self._login.service}/{self._host})"
            ) from None

    def _begun(self, gssapi: Any) -> Any:
        login = self._login
        store: dict[str, str] = {}
        if login.keytab:
            # A separate cache for this login: the machine's default one belongs to others.
            store = {"client_keytab": login.keytab, "ccache": f"MEMORY:{login.principal} {login.keytab}"}
        name = None
        if login.principal:
            name = gssapi.Name(login.principal, name_type=gssapi.NameType.kerberos_principal)
        credentials = gssapi.Credentials(name=name, usage="initiate", store=store or None)
        service = gssapi.Name(f"{login.service}@{self._host}", name_type=gssapi.NameType.hostbased_service)
        return gssapi.SecurityContext(
            name=service, creds=credentials, mech=gssapi.MechType.kerberos, usage="initiate"
        )

    def agreement(self, offer: bytes) -> bytes:
        """The protection of the connection from now on: none, which the broker must accept. Raises
        KerberosError."""
        if len(offer) != 4 or not offer[0] & _NO_PROTECTION:
            raise KerberosError("the broker asks for a protection of Kerberos' own: use TLS (SASL_SSL)")
        self._is_agreed = True
        answer = bytes([_NO_PROTECTION, 0, 0, 0])
        wrapped: bytes = self._context.wrap(answer, False).message
        return wrapped
