"""SASL with Kafka's own requests, also again on a connection in use (KIP-368).

Unlike aiokafka's, it reads how long the broker lets the session live, and answers a broker that refuses a
token, so that the reason of the refusal arrives.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import aiokafka.errors as aiokafka_errors
from aiokafka.protocol.admin import SaslAuthenticateRequest, SaslHandShakeRequest

Send = Callable[[Any], Awaitable[Any]]

REAUTHENTICATE_AT = 0.85
"""A client logs in again after this share of the session's life; Java does so after 85 to 95 %."""
MIN_SESSION_SECONDS = 1.1
"""Brokers accept no second login within a second."""
_DUMMY = b"\x01"
"""The client's answer to the details of a refusal (RFC 7628)."""


class Authenticator(Protocol):
    """The client's side of a SASL mechanism. Implemented by aiokafka's classes."""

    def step(self, payload: bytes | None) -> Awaitable[tuple[bytes, bool] | None]: ...


async def log_in(send: Send, mechanism: str, authenticator: Authenticator) -> float:
    """Authenticate; return how many seconds the session lives, 0 = without limit. Raises aiokafka's
    errors."""
    handshake = await send(SaslHandShakeRequest(mechanism))
    _raise_for(handshake.error_code, f"the broker offers {', '.join(handshake.enabled_mechanisms)}")
    lifetime_ms, challenge = 0, None
    while True:
        move = await authenticator.step(challenge)
        if move is None:
            return lifetime_ms / 1000
        answer = await send(SaslAuthenticateRequest(move[0]))
        _raise_for(answer.error_code, answer.error_message or "")
        lifetime_ms = getattr(answer, "session_lifetime_ms", 0)
        challenge = answer.sasl_auth_bytes
        if mechanism == "OAUTHBEARER" and challenge:
            refusal = await send(SaslAuthenticateRequest(_DUMMY))
            _raise_for(refusal.error_code, refusal.error_message or "")
            raise aiokafka_errors.SaslAuthenticationFailed("the broker refused the token")


def _raise_for(code: int, message: str) -> None:
    if code:
        raise aiokafka_errors.for_code(code)(message)
