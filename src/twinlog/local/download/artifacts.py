"""Real Kafka's jars: the sets that exist, the check that a set is complete, and the download into the cache.

A set lives in `<cache>/kafka/<name>/`, with `manifest.json` beside its jars: each jar's size and SHA-256. The
directory appears in one rename, once it holds every jar with the hash that Twinlog recorded. So a set is
complete unless somebody removed files from it later: each use compares the sizes, `verify` compares the
contents, and an incomplete set is fetched again. One process fetches at a time.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from twinlog.errors import TwinlogError
from twinlog.local.download.ivy import Coordinate, Say, retrieve, say_on_stderr
from twinlog.machine import Java, cache_dir, find_java, writable_cache

_TOOLS = "4.3.1"
_LOG4J = "2.25.4"
_MANIFEST = "manifest.json"
HASHES = Path(__file__).with_name("jar_hashes.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactSet:
    """Maven artifacts that make one class path, with all their dependencies."""

    name: str
    coordinates: tuple[Coordinate, ...]
    sha256: Mapping[str, str] = field(default_factory=dict)
    """Of each jar, by file name. A set with other hashes is refused. Empty = no hashes were recorded."""


def recorded_hashes(name: str) -> Mapping[str, str]:
    """The hashes from when the version was chosen; `python -m deploy.supply.kafka_jars` records them."""
    recorded: dict[str, dict[str, str]] = json.loads(HASHES.read_text())
    return recorded.get(name, {})


def _log4j() -> tuple[Coordinate, ...]:
    # Kafka declares the logging façade only, and Connect 4.x compiles against log4j without declaring it.
    return tuple(
        Coordinate("org.apache.logging.log4j", module, _LOG4J)
        for module in ("log4j-api", "log4j-core", "log4j-slf4j-impl")
    )


def broker_artifacts(version: str) -> ArtifactSet:
    """A broker of this release of Kafka, as "4.3.1"."""
    name = f"kafka-broker-{version}"
    logging = _log4j() if version >= "4" else (Coordinate("org.slf4j", "slf4j-reload4j", "1.7.36"),)
    return ArtifactSet(
        name=name,
        coordinates=(Coordinate("org.apache.kafka", "kafka_2.13", version), *logging),
        sha256=recorded_hashes(name),
    )


KAFKA_4_TOOLS: Final = ArtifactSet(
    name=f"kafka-tools-{_TOOLS}",
    coordinates=(
        *(
            Coordinate("org.apache.kafka", module, _TOOLS)
            for module in ("connect-mirror", "connect-mirror-client", "connect-runtime", "kafka-tools")
        ),
        *_log4j(),
    ),
    sha256=recorded_hashes(f"kafka-tools-{_TOOLS}"),
)


class ArtifactsDamagedError(TwinlogError):
    """Jars in the cache differ from their manifest."""

    default_reason = "ARTIFACTS_DAMAGED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Jars:
    """A complete set in the cache."""

    name: str
    directory: Path

    @property
    def class_path(self) -> str:
        """Every jar by name, always in the same order: a class archive is valid only for exactly this
        string."""
        return os.pathsep.join(str(jar) for jar in sorted(self.directory.glob("*.jar")))


def ensure_jars(artifacts: ArtifactSet, *, java: Java | None = None, say: Say = say_on_stderr) -> Jars:
    """Return the set from the cache, or fetch it: that blocks for about a minute the first time.

    `say` gets lines about its progress. Raises FetchError when the set cannot be
    fetched, ArtifactsDamagedError when the files differ from the recorded hashes, and JavaNotFoundError.
    """
    directory = _directory(artifacts)
    if not _is_complete(directory):
        with _only_fetcher():
            if not _is_complete(directory):
                _fetch(artifacts, directory, java or find_java(), say)
    return Jars(name=artifacts.name, directory=directory)


def _directory(artifacts: ArtifactSet) -> Path:
    return cache_dir() / "kafka" / artifacts.name


def _is_complete(directory: Path) -> bool:
    manifest = _read_manifest(directory)
    return bool(manifest) and all(
        _size(directory / name) == entry["size_bytes"] for name, entry in manifest.items()
    )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _read_manifest(directory: Path) -> Mapping[str, Mapping[str, object]]:
    """Entries by file name; empty without a readable manifest."""
    try:
        content = json.loads((directory / _MANIFEST).read_text())
        return dict(content["jars"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _fetch(artifacts: ArtifactSet, directory: Path, java: Java, say: Say) -> None:
    draft = directory.with_name(f".{artifacts.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    retrieve(artifacts.name, artifacts.coordinates, draft, java=java, say=say)
    hashes = jar_hashes(draft)
    others = sorted(name for name, _ in hashes.items() ^ artifacts.sha256.items()) if artifacts.sha256 else []
    if others:
        shutil.rmtree(draft, ignore_errors=True)
        raise ArtifactsDamagedError(
            f"{artifacts.name}: the checksums of downloaded files do not match:"
            f" {', '.join(dict.fromkeys(others))}. They were deleted; use another repository",
            metadata={"set": artifacts.name, "files": ",".join(dict.fromkeys(others))},
        )
    manifest = {
        name: {"size_bytes": (draft / name).stat().st_size, "sha256": sha256}
        for name, sha256 in hashes.items()
    }
    (draft / _MANIFEST).write_text(json.dumps({"jars": manifest}, indent=1, sort_keys=True))
    shutil.rmtree(directory, ignore_errors=True)
    draft.rename(directory)


def jar_hashes(directory: Path) -> dict[str, str]:
    """SHA-256 of each jar in the directory, by file name."""
    return {jar.name: _sha256(jar) for jar in directory.glob("*.jar")}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _only_fetcher() -> Iterator[None]:
    """Hold the lock that lets one process fetch at a time. The others wait as long as that process lives."""
    lock = writable_cache() / "fetch.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
