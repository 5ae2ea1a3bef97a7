"""JWTs in a client: reading their expiry, and signing an assertion (RFC 7523)."""

import base64
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinlog import strange_json
from twinlog.kafka.security.oauth.reading import Assertion, TokenError, UnsecuredClaims

ALGORITHMS = ("RS256", "ES256")
_MAX_FILE_BYTES = 1 << 20
_P256_BYTES = 32
_MOST_SECONDS = 1e12
"""Some 30,000 years."""


def claims_of(token: str) -> Mapping[str, Any]:
    """The payload of a JWT, without checking its signature, which is the broker's task. Empty for other
    tokens."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        payload = strange_json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return payload if isinstance(payload, dict) else {}


def expiry_of(token: str) -> float | None:
    """The claim `exp`, seconds since 1970; None when there is none."""
    return _moment(token, "exp")


def lifetime_of(token: str, expires_at: float, seen_at: float) -> float:
    """Seconds from the claim `iat` to the token's end; from `seen_at` if it has none, or a later one."""
    issued_at = _moment(token, "iat")
    return expires_at - (seen_at if issued_at is None else min(issued_at, seen_at))


def _moment(token: str, claim: str) -> float | None:
    return seconds_of(claims_of(token).get(claim))


def seconds_of(value: object) -> float | None:
    """A number in JSON; None for anything else, and for one outside the range of clocks."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _MOST_SECONDS else None


def unsecured_token(claims: UnsecuredClaims, now: float) -> tuple[str, float]:
    """A token without a signature, and when it expires."""
    expires_at = now + claims.lifetime_seconds
    payload: dict[str, Any] = {"iat": now, "exp": expires_at}
    payload |= dict(claims.texts) | dict(claims.numbers)
    payload |= {name: list(values) for name, values in claims.lists}
    return f"{_part({'alg': 'none'})}.{_part(payload)}.", float(payload["exp"])


def assertion_text(assertion: Assertion, now: float) -> str:
    """The assertion in `assertion.file`, or one that is signed now. Reads files. Raises TokenError."""
    if assertion.file:
        return read_small(assertion.file).decode("ascii", "replace").strip()
    header: dict[str, Any] = {}
    payload: dict[str, Any] = {}
    if assertion.template_file:
        template = _template(assertion.template_file)
        header |= template.get("header") or {}
        payload |= template.get("payload") or {}
    header |= {"alg": assertion.algorithm, "typ": header.get("typ", "JWT")}
    payload |= {
        "iat": int(now),
        "exp": int(now) + assertion.lifetime_seconds,
        "nbf": int(now) - assertion.backdated_seconds,
        **dict(assertion.claims),
    }
    if assertion.with_id:
        payload["jti"] = str(uuid.uuid4())
    signed = f"{_part(header)}.{_part(payload)}"
    return f"{signed}.{_encoded(_signature(assertion, signed.encode()))}"


def read_small(path: str) -> bytes:
    """The file. Raises TokenError, also for a missing file, which may appear later."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TokenError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise TokenError(f"{path} is larger than 1 MiB", refused=True)
    return content


def _template(path: str) -> Mapping[str, Any]:
    try:
        template = strange_json.loads(read_small(path))
    except ValueError as error:
        raise TokenError(f"{path} is no JSON") from error
    if not isinstance(template, dict) or not all(
        isinstance(template.get(part) or {}, dict) for part in ("header", "payload")
    ):
        raise TokenError(f"{path} is no JSON object with header and payload", refused=True)
    return template


def _signature(assertion: Assertion, data: bytes) -> bytes:
    # Imported where it is needed: the library would cost every process without it 10 MB.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    password = assertion.key_password.encode() if assertion.key_password else None
    try:
        key = load_pem_private_key(read_small(assertion.key_file), password)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise TokenError(
            f"{assertion.key_file} is no PEM private key that opens with the given passphrase"
        ) from error
    if assertion.algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(data, padding.PKCS1v15(), SHA256())
    if (
        assertion.algorithm == "ES256"
        and isinstance(key, ec.EllipticCurvePrivateKey)
        and key.curve.name == "secp256r1"
    ):
        r, s = decode_dss_signature(key.sign(data, ec.ECDSA(SHA256())))
        return r.to_bytes(_P256_BYTES, "big") + s.to_bytes(_P256_BYTES, "big")
    raise TokenError(f"the key of {assertion.key_file} does not fit {assertion.algorithm}", refused=True)


def _part(content: Mapping[str, Any]) -> str:
    return _encoded(json.dumps(content, separators=(",", ":")).encode())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
