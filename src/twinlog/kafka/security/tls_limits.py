"""Converts `ssl.enabled.protocols`, `ssl.protocol` and `ssl.cipher.suites` (Java's names) for OpenSSL. Pure.

A value that OpenSSL's Python binding cannot follow is refused: a hardening setting is never weakened
silently.
"""

import re
from dataclasses import dataclass

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
_TLS_1_3_SUITES = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)
_SUITE = re.compile(
    r"TLS_(?P<exchange>(?:EC)?DHE_(?:RSA|ECDSA)|RSA)_WITH_"
    r"(?P<cipher>AES_(?:128|256)_(?:GCM|CBC)|CHACHA20_POLY1305)_(?P<hash>SHA(?:256|384)?)"
)


class TlsLimitError(ValueError):
    """`key` names the setting; the text has the problem and the remedy."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsLimits:
    """What a TLS connection may use. By default TLS 1.2 and 1.3, all suites."""

    least: str = TLS_1_2
    """The oldest protocol."""
    most: str = TLS_1_3
    """The newest protocol."""
    ciphers: str = ""
    """OpenSSL's cipher list for TLS 1.2; empty = the library's own."""


def tls_limits(protocols: str, suites: str, protocol: str = "") -> TlsLimits:
    """Read the settings; empty means not set. Raises TlsLimitError."""
    wanted = _enabled(protocols)
    least = TLS_1_3 if wanted and TLS_1_2 not in wanted else TLS_1_2
    most = TLS_1_3 if not wanted or TLS_1_3 in wanted else TLS_1_2
    if _is_1_2(protocol):
        most = TLS_1_2
    if least > most:
        raise TlsLimitError("ssl.protocol", f"{protocol} is none of ssl.enabled.protocols")
    named = _names(suites)
    if not named:
        return TlsLimits(least=least, most=most)
    of_1_3 = _TLS_1_3_SUITES.intersection(named)
    if of_1_3 and of_1_3 != _TLS_1_3_SUITES and most == TLS_1_3:
        raise TlsLimitError(
            "ssl.cipher.suites",
            f"TLS 1.3 cannot be limited to {', '.join(sorted(of_1_3))}; name all of"
            f" {', '.join(sorted(_TLS_1_3_SUITES))}, or none of them to use TLS 1.2 only",
        )
    of_1_2 = [_openssl_name(name) for name in named if name not in _TLS_1_3_SUITES]
    least = least if of_1_2 else TLS_1_3
    most = most if of_1_3 else TLS_1_2
    if least > most:
        raise TlsLimitError("ssl.cipher.suites", "none of them is a suite of the protocols that are left")
    return TlsLimits(least=least, most=most, ciphers=":".join(of_1_2))


def _is_1_2(protocol: str) -> bool:
    """Whether `ssl.protocol` leaves TLS 1.3 out: Java's clients use nothing newer than what it names."""
    name = protocol.strip().upper()
    if name not in ("", "TLS", "TLSV1.2", "TLSV1.3"):
        raise TlsLimitError("ssl.protocol", f"{protocol} is not supported; use TLS, {TLS_1_2} or {TLS_1_3}")
    return name == "TLSV1.2"


def _enabled(protocols: str) -> list[str]:
    wanted = _names(protocols)
    unknown = [name for name in wanted if name not in (TLS_1_2, TLS_1_3)]
    if unknown:
        raise TlsLimitError(
            "ssl.enabled.protocols",
            f"{', '.join(unknown)} is not supported; use {TLS_1_2}, {TLS_1_3} or both",
        )
    return wanted


def _openssl_name(suite: str) -> str:
    match = _SUITE.fullmatch(suite)
    if match is None:
        raise TlsLimitError(
            "ssl.cipher.suites",
            f"{suite} is not supported; use suites of AES or CHACHA20 with (EC)DHE or RSA",
        )
    exchange, cipher = match["exchange"].replace("_", "-"), match["cipher"]
    parts = [] if exchange == "RSA" else [exchange]
    if cipher.startswith("CHACHA20"):
        parts.append("CHACHA20-POLY1305")
        return "-".join(parts)
    name, bits, mode = cipher.split("_")
    parts.append(f"{name}{bits}")
    if mode == "GCM":
        parts.append("GCM")
    parts.append(match["hash"])
    return "-".join(parts)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
