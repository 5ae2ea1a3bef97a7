"""Real Kafka's jars: the sets that exist, the check that a set is complete, and the download into the cache.

A set lives in `<cache>/kafka/<name>/`. The directory appears in one rename, once it holds every jar with the
hash that Twinlog recorded, so a set is complete unless somebody removed files from it later: an incomplete
one is fetched again. One process fetches at a time. A company with a mirror of Maven's repository names it in
TWINLOG_MAVEN_URL.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final

from twinlog.errors import TwinlogError
from twinlog.machine import cache_dir, writable_cache

JARS = Path(__file__).with_name("jar_hashes.json")
"""By set: SHA-256 of each jar by its place in a Maven repository; `python -m deploy.supply.kafka_jars`
records it."""
URL_VARIABLE: Final = "TWINLOG_MAVEN_URL"
_URL: Final = "https://repo1.maven.org/maven2"
_AT_ONCE = 8
_STALL_SECONDS = 60.0

Read = Callable[[str], bytes]
"""The content at an address. Raises OSError, HTTPException."""


def broker_set(version: str) -> str:
    """The name of the set for a broker of this release of Kafka, as "4.3.1"."""
    return f"kafka-broker-{version}"


def tools_set() -> str:
    """Java's MirrorMaker 2, its formatters and its client."""
    return "kafka-tools-4.3.1"


class FetchError(TwinlogError):
    """Jars could not be fetched. Those in the cache still work."""

    retriable = True
    default_reason = "FETCH_FAILED"


class ArtifactsDamagedError(TwinlogError):
    """A repository has another jar than the one that was recorded."""

    default_reason = "ARTIFACTS_DAMAGED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Jars:
    """A complete set in the cache."""

    directory: Path

    @property
    def class_path(self) -> str:
        """Every jar by name, always in the same order: a class archive is valid only for exactly this
        string."""
        return os.pathsep.join(str(jar) for jar in sorted(self.directory.glob("*.jar")))


def ensure_jars(name: str) -> Jars:
    """Return the set from the cache, or fetch it: that blocks for some seconds the first time.

    Raises FetchError when the set cannot be fetched, ArtifactsDamagedError when a jar is another than
    the recorded one.
    """
    directory = cache_dir() / "kafka" / name
    places: Mapping[str, str] = json.loads(JARS.read_text())[name]
    if not _is_complete(directory, places):
        with _only_fetcher():
            if not _is_complete(directory, places):
                sys.stderr.write(f"fetching {name}: {len(places)} jars, once\n")
                fetch(places, directory, _read)
    return Jars(directory=directory)


def _is_complete(directory: Path, places: Mapping[str, str]) -> bool:
    return all((directory / Path(place).name).is_file() for place in places)


def fetch(places: Mapping[str, str], directory: Path, read: Read) -> None:
    """Make the directory with these jars. What arrived before an error is not fetched again. Raises as
    `ensure_jars`."""
    draft = directory.with_name(f".{directory.name}.partial")
    draft.mkdir(parents=True, exist_ok=True)
    base = os.environ.get(URL_VARIABLE, _URL).rstrip("/")

    def get(place: str) -> None:
        jar, url = draft / Path(place).name, f"{base}/{place}"
        if jar.is_file() and _sha256(jar.read_bytes()) == places[place]:
            return
        try:
            content = read(url)
        except (OSError, HTTPException) as error:
            raise FetchError(
                f"cannot fetch {url}: {error}. It needs a Maven repository: by default the public one over"
                f" HTTPS. Behind a proxy set HTTPS_PROXY; for a company's mirror {URL_VARIABLE}. Then run it"
                " again: what arrived is kept",
                metadata={"url": url},
            ) from error
        if _sha256(content) != places[place]:
            raise ArtifactsDamagedError(
                f"{url} does not have the recorded checksum: use another repository ({URL_VARIABLE})",
                metadata={"url": url},
            )
        jar.write_bytes(content)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(get, places))
    shutil.rmtree(directory, ignore_errors=True)
    draft.rename(directory)


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_STALL_SECONDS) as answer:  # noqa: S310 - a checksum follows
        content: bytes = answer.read()
        return content


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def _only_fetcher() -> Iterator[None]:
    """Hold the lock that lets one process fetch at a time. The others wait as long as that process lives."""
    lock = writable_cache() / "fetch.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
